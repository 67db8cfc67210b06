"""The columns of a Parquet file that hold image, label, split and group.

Hugging Face's library ``datasets`` describes the columns in the file's metadata: which one is an image, and
the class names of labels that are numbers. It writes an image as a struct of ``bytes`` and ``path``. Without
that, a column of bytes is the image if it is the only one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.beam_jobs.config import RowsConfig
from shardmill.beam_jobs.sources.rows.typed import asked_columns, needs_label
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.labels import LabelKind
from shardmill.infra.near_names import near_names

IMAGE_NAMES = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "bytes")
LABEL_NAMES = ("label", "class", "class_name", "label_name", "category", "target")
_LIST_NAMES = ("labels", "classes", "tags", "categories", "targets")  # of kinds with several a row

_COLUMNS_SHOWN = 20


@dataclass(frozen=True)
class Columns:
    """The columns of a file.

    Attributes:
        image: with the images.
        is_struct: an image is a struct of ``bytes`` and ``path``.
        label: with the class, the list of labels or the numbers; None if other columns hold them, or there
            are none.
        split: with the split, or None.
        group: with the group, or None.
        names: number -> name of the classes, by the metadata of the file.
        others: with labels in columns of their own, and with features.
    """

    image: str
    is_struct: bool
    label: str | None
    split: str | None = None
    group: str | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def in_words(self) -> str:
        """The columns, for people."""
        named = f", with {len(self.names)} class names in its metadata" if self.names else ""
        labels = f", labels in {self.label!r}{named}" if self.label is not None else ""
        others = f", further columns {', '.join(map(repr, self.others))}" if self.others else ""
        return f"images in the column {self.image!r}{labels}{others}"


def find_image(uri: str, file: pq.ParquetFile, settings: RowsConfig) -> tuple[str, bool]:
    """Find the column with the images, and tell whether an image is a struct.

    Args:
        uri: of the file, for errors.
        file: the open file.
        settings: names of columns that the user gives.

    Raises:
        ConfigError: it is not there or of another type, or which one is meant cannot be told.
    """
    schema = file.schema_arrow
    image = settings.image or _recognised_image(uri, schema, _features(schema), settings.mask)
    _check_there(uri, schema, "image", image)
    kind = schema.field(image).type
    if not holds_images(kind):
        raise ConfigError(
            f"the column {image!r} of {uri} holds {kind}, not images",
            "name a column of bytes, or of structs with bytes, with --set source.rows.image=NAME",
        )
    return image, pa.types.is_struct(kind)


def path_of_images(image: str, is_struct: bool) -> str:
    """Return the path of the column of bytes in the file."""
    return f"{image}.bytes" if is_struct else image


def find_columns(
    uri: str,
    file: pq.ParquetFile,
    settings: RowsConfig,
    kind: LabelKind,
    first: Columns | None = None,
) -> Columns:
    """Find the columns of a file.

    Args:
        uri: of the file, for errors.
        file: the open file.
        settings: names of columns that the user gives.
        kind: of the labels.
        first: the columns of the first file; this file must have the same.

    Raises:
        ConfigError: a column is not there or of another type, or which one is meant cannot be told.
    """
    schema = file.schema_arrow
    features = _features(schema)
    given = settings if first is None else settings.model_copy(update={"image": first.image})
    image, is_struct = find_image(uri, file, given)
    label = None
    if needs_label(settings, kind):
        label = settings.label or (first.label if first else _recognised_label(uri, schema, features, kind))
    if kind == "mask" and settings.mask is not None:
        find_image(uri, file, settings.model_copy(update={"image": settings.mask}))
    others = asked_columns(settings, kind)
    named = [("label", label), ("split", settings.split), ("group", settings.group)]
    for key, column in [*named, *(("features", column) for column in others)]:
        if column is not None:
            _check_there(uri, schema, key, column)
    names = _names(features.get(label)) if label is not None else {}
    return Columns(image, is_struct, label, settings.split, settings.group, names, tuple(others))


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    """Return the description of each column that Hugging Face's library left; empty if there is none."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _is(feature: Any, kind: str) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == kind


def _names(feature: Any) -> dict[int, str]:
    """Return the class names of a column of numbers, or of lists of them."""
    if isinstance(feature, list) and len(feature) == 1:
        return _names(feature[0])
    if _is(feature, "Sequence") or _is(feature, "List") or _is(feature, "LargeList"):
        return _names(feature.get("feature"))
    names = feature.get("names") if _is(feature, "ClassLabel") else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return {}
    return dict(enumerate(names))


def _recognised_image(uri: str, schema: pa.Schema, features: Mapping[str, Any], mask: str | None) -> str:
    """Return the column of the images; ``mask`` is the column of the masks."""
    typed = [field.name for field in schema if holds_images(field.type) and field.name != mask]
    described = [name for name in typed if _is(features.get(name), "Image")]
    for candidates in (described, typed, [name for name in typed if name.lower() in IMAGE_NAMES]):
        if len(candidates) == 1:
            return str(candidates[0])
    shown = ", ".join(f"{field.name} ({_short(field.type)})" for field in list(schema)[:_COLUMNS_SHOWN])
    if not typed:
        raise ConfigError(
            f"{uri} has no column of bytes that could hold images; it has {shown}",
            "if a column names image files, use --set source.kind=table",
        )
    raise ConfigError(
        f"{uri} has several columns that could hold images: {', '.join(typed)}",
        "say which one with --set source.rows.image=NAME",
    )


def _recognised_label(uri: str, schema: pa.Schema, features: Mapping[str, Any], kind: LabelKind) -> str:
    several = kind in ("multi", "targets")
    described = [
        name
        for name in schema.names
        if _is(features.get(name), "ClassLabel") or (several and _names(features.get(name)))
    ]
    if len(described) == 1 and kind != "targets":
        return str(described[0])
    for name in (_LIST_NAMES if several else ()) + LABEL_NAMES:
        if name in schema.names and (not described or name in described):
            return name
    others = described or [field.name for field in schema if not holds_images(field.type)]
    raise ConfigError(
        f"which column of {uri} holds the labels cannot be told; it has {', '.join(map(repr, others))}",
        "name it with --set source.rows.label=NAME",
    )


def _check_there(uri: str, schema: pa.Schema, key: str, column: str) -> None:
    count = schema.names.count(column)
    if count == 1:
        return
    near = near_names(column, schema.names)
    shown = ", ".join(map(repr, schema.names[:_COLUMNS_SHOWN]))
    raise ConfigError(
        f"{uri} has {count or 'no'} column{'s'[: count > 1]} {column!r} for the {key}; it has {shown}",
        f"did you mean --set source.rows.{key}={near[0]}?"
        if near and near[0] != column
        else f"name it with --set source.rows.{key}=NAME, or choose other files with source.files",
    )


def holds_images(kind: pa.DataType) -> bool:
    """Tell whether a column of this type may hold images: bytes, or structs with bytes."""
    if pa.types.is_struct(kind):
        at = kind.get_field_index("bytes")
        return at >= 0 and _is_binary(kind.field(at).type)
    return _is_binary(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _short(kind: pa.DataType) -> str:
    text = str(kind)
    return text if len(text) <= 30 else f"{text[:29]}…"
