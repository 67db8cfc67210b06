"""The columns of a source: what each of them holds, and what becomes of the labels in them.

One group of settings serves every kind of source that has columns: those of a table or of Parquet, arrays,
features of records (TFRecord, ArrayRecord, TensorFlow Datasets), and keys of the sidecars of WebDataset.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from shardmill.infra.settings import Renamed, Settings, WrongValue

FeatureKind = Literal["auto", "int64", "float", "text", "bytes"]
_FEATURE_NAME = "[A-Za-z][A-Za-z0-9_]*"


def _one_is_a_list(value: object) -> object:
    """Accept a single text where a list of texts is meant."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_one_is_a_list)]


class FeatureColumn(Settings):
    """A further feature of the records: a column of the source, and how its values are read."""

    column: str | None = Field(None, description="Column of the source; unset: the name of the feature")
    dtype: FeatureKind = Field(
        "auto",
        description="auto: as Parquet and JSON have it, and text in csv; a float has 32 bits. Whole numbers "
        "that are to be floats, and numbers in csv, need it",
    )
    separator: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Text between the values of a list, if the column holds text; unset: one value"
    )
    length: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Number of values in each list; unset: any number, or as Parquet fixes it"
    )


def feature_name(column: str) -> str:
    """Return a valid name of a feature for a column.

    Other characters than letters, digits and _ become _. ``source_`` is put before a name that begins with
    no letter, or that every record has already.
    """
    from shardmill.infra.format.contract import RESERVED_NAMES  # with the library of tables

    name = re.sub(r"[^A-Za-z0-9_]", "_", column)
    return f"source_{name}" if name in RESERVED_NAMES or not name[:1].isalpha() else name


def _by_name(value: object) -> object:
    """Accept a list of columns, and names with their columns."""
    value = _one_is_a_list(value)
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    if isinstance(value, dict):
        return {name: {"column": one} if isinstance(one, str) else one for name, one in value.items()}
    return value


def _with_own_names(features: dict[str, FeatureColumn]) -> dict[str, FeatureColumn]:
    if not features:
        return features
    from shardmill.infra.format.contract import RESERVED_NAMES  # with the library of tables

    for name in features:
        if not re.fullmatch(_FEATURE_NAME, name):
            raise WrongValue(
                f"{name!r} is no name of a feature",
                f'write letters, digits and _, as in features = {{ width_cm = "{name}" }}',
            )
        if name in RESERVED_NAMES:
            raise WrongValue(
                f"{name!r} is a name that every record or index has",
                f'give the feature another, as in features = {{ my_{name} = "{name}" }}',
            )
    return features


FeatureColumns = Annotated[
    dict[str, FeatureColumn], BeforeValidator(_by_name), AfterValidator(_with_own_names)
]


class ColumnsConfig(Settings):
    """What the columns of a source hold, and what becomes of the labels in them."""

    image: str | None = Field(
        None,
        description=(
            "Image's path (its ending may be missing) or address; of files of rows the image "
            "itself; unset: path, or recognised"
        ),
    )
    label: str | None = Field(
        None,
        description=(
            "Class, list of classes (labels = multi; or an array [N, C] of 0 and 1) or numbers "
            "(targets); unset: label, or recognised"
        ),
    )
    label_separator: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Text between several labels in label"
    )
    label_columns: Names = Field((), description="Columns of 0 and 1, one a label")
    target_columns: Names = Field((), description="Columns with the numbers to predict")
    mask: str | None = Field(
        None,
        description="Mask's path or address, or (parquet) the encoded mask",
    )
    split: str | None = Field(None, description="Split (train, val, test); empty: chosen")
    group: str | None = Field(
        None, description="Key of images that must stay in one split (a patient, a video)"
    )
    features: FeatureColumns | None = Field(
        None,
        description=(
            "Further features of the records: columns, or each feature's name with its column or a "
            "table of column, dtype, separator, length; of archives keys of .json, or txt; unset: "
            "none, of tfds all"
        ),
    )
    class_names: Names = Field((), description="Names of classes whose labels are numbers, from 0")
    classes_file: str | None = Field(
        None,
        description="File with these: a name a line, number:name a line, or JSON",
    )
    drop_labels: Names = Field(
        (),
        description=("Labels of the source whose images (of coco, voc, box_table: objects) are left out"),
    )
    merge_labels: dict[str, str] = Field({}, description="Label of the source to the name of its class")

    @property
    def image_column(self) -> str:
        """Name of the column of images of a table: "path" if the settings name none."""
        return self.image or "path"

    @property
    def label_column(self) -> str:
        """Name of the column of labels of a table or sidecar: "label" if the settings name none."""
        return self.label or "label"

    @property
    def further(self) -> dict[str, FeatureColumn]:
        """The further features by name; empty if none are named."""
        return self.features or {}

    @property
    def names_several(self) -> bool:
        """Whether the settings name columns that give an image several labels."""
        return bool(self.label_columns) or self.label_separator is not None


# Where these settings stood before they were one group: group -> name there -> (name here, default there).
# Digests of versions and of unfinished work cover the settings in that form.
_WORDS: dict[str, tuple[str, Any]] = {
    "class_names": ("class_names", ()),
    "classes_file": ("classes_file", None),
    "drop_labels": ("drop_labels", ()),
    "merge_labels": ("merge_labels", {}),
    "features": ("features", {}),
}
_OF_LABELS: dict[str, tuple[str, Any]] = {
    "label_separator": ("label_separator", None),
    "label_columns": ("label_columns", ()),
    "target_columns": ("target_columns", ()),
}
_OF_TABLES: dict[str, tuple[str, Any]] = {
    "path_column": ("image", "path"),
    "label_column": ("label", "label"),
    "split_column": ("split", None),
    "group_column": ("group", None),
}
_FORMER: dict[str, dict[str, tuple[str, Any]]] = {
    "table": {**_OF_TABLES, **_OF_LABELS, **_WORDS, "mask_column": ("mask", None)},
    "rows": {name: (name, None) for name in ("image", "mask", "label", "split", "group")}
    | _OF_LABELS
    | _WORDS,
    "archive": {"label_key": ("label", "label"), "split_key": ("split", None), "group_key": ("group", None)}
    | _WORDS,
    "objects": {name: _WORDS[name] for name in ("drop_labels", "merge_labels")},
    "objects.table": {**_OF_TABLES, "features": ("features", {})},
}
# Settings of source.table that stood in source.objects.table too, with their defaults there.
FORMER_OF_BOX_TABLES: Final = {"format": "auto", "delimiter": None, "quotes": True, "encoding": None}


def _of_tfds(features: object) -> object:
    """Return the columns of the former ``tfds.features`` as name of the feature -> column."""
    columns = _one_is_a_list(features)
    if not isinstance(columns, list | tuple):
        return columns
    named = {feature_name(str(column)): {"column": column} for column in columns}
    return named if len(named) == len(columns) else columns


RENAMED: Final = {
    f"{group}.{old}": Renamed(f"columns.{new}", default)
    for group, names in _FORMER.items()
    for old, (new, default) in names.items()
} | {
    "tfds.features": Renamed("columns.features", None, _of_tfds),
    **{
        f"objects.table.{name}": Renamed(f"table.{name}", default)
        for name, default in FORMER_OF_BOX_TABLES.items()
    },
}


def former(columns: ColumnsConfig, group: str) -> dict[str, Any]:
    """Return the settings by the names that an earlier release gave them in ``group``, JSON-able."""
    now = columns.model_dump(mode="json")
    names = _FORMER[group].items()
    return {old: default if now[new] is None else now[new] for old, (new, default) in names}


def former_features(columns: ColumnsConfig) -> list[str] | dict[str, Any] | None:
    """Return the further features in the form of the former ``tfds.features``.

    That is a list of their columns if each has the name that ``feature_name`` gives it, else name -> column.
    """
    features = columns.features
    if features is None:
        return None
    keys = {name: one.column or name for name, one in features.items()}
    follow = all(name == feature_name(key) for name, key in keys.items())
    return list(keys.values()) if follow else keys
