"""The columns of a Parquet file that hold image, label, split and group.

Hugging Face's library ``datasets`` describes the columns in the file's metadata: which one is an image, and
the class names of labels that are numbers. It writes an image as a struct of ``bytes`` and ``path``. Without
that, a column of bytes is the image if it is the only one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.config import RowsConfig
from infra.errors import ConfigError

IMAGE_NAMES = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "bytes")
LABEL_NAMES = ("label", "class", "class_name", "label_name", "category", "target")

_COLUMNS_SHOWN = 20


@dataclass(frozen=True)
class Columns:
    """The columns of a file.

    Attributes:
        image: with the images.
        is_struct: an image is a struct of ``bytes`` and ``path``.
        label: with the class.
        split: with the split, or None.
        group: with the group, or None.
        names: number -> name of the classes, by the metadata of the file.
    """

    image: str
    is_struct: bool
    label: str
    split: str | None = None
    group: str | None = None
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path of the column of bytes in the file."""
        return f"{self.image}.bytes" if self.is_struct else self.image

    def in_words(self) -> str:
        """The columns, for people."""
        named = f", with {len(self.names)} class names in its metadata" if self.names else ""
        return f"images in the column {self.image!r}, labels in {self.label!r}{named}"


def find_columns(
    uri: str, file: pq.ParquetFile, settings: RowsConfig, first: Columns | None = None
) -> Columns:
    """Find the columns of a file.

    Args:
        uri: of the file, for errors.
        file: the open file.
        settings: names of columns that the user gives.
        first: the columns of the first file; this file must have the same.

    Raises:
        ConfigError: a column is not there or of another type, or which one is meant cannot be told.
    """
    schema = file.schema_arrow
    features = _features(schema)
    image = settings.image or (first.image if first else _recognised_image(uri, schema, features))
    label = settings.label or (first.label if first else _recognised_label(uri, schema, features))
    for key, column in (
        ("image", image),
        ("label", label),
        ("split", settings.split),
        ("group", settings.group),
    ):
        if column is not None:
            _check_there(uri, schema, key, column)
    kind = schema.field(image).type
    if not holds_images(kind):
        raise ConfigError(
            f"the column {image!r} of {uri} holds {kind}, not images",
            "name a column of bytes, or of structs with bytes, with --set source.rows.image=NAME",
        )
    names = _names(features.get(label))
    return Columns(image, pa.types.is_struct(kind), label, settings.split, settings.group, names)


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
    names = feature.get("names") if _is(feature, "ClassLabel") else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return {}
    return dict(enumerate(names))


def _recognised_image(uri: str, schema: pa.Schema, features: Mapping[str, Any]) -> str:
    described = [name for name in schema.names if _is(features.get(name), "Image")]
    typed = [field.name for field in schema if holds_images(field.type)]
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


def _recognised_label(uri: str, schema: pa.Schema, features: Mapping[str, Any]) -> str:
    described = [name for name in schema.names if _is(features.get(name), "ClassLabel")]
    if len(described) == 1:
        return str(described[0])
    for name in LABEL_NAMES:
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
    near = difflib.get_close_matches(column, schema.names, n=1)
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
