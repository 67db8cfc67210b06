"""A table that names images and their labels."""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from shardmill.infra.settings import Settings

FeatureKind = Literal["auto", "int64", "float", "text", "bytes"]
TableFormat = Literal["auto", "csv", "jsonl", "parquet"]
_FEATURE_NAME = "[A-Za-z][A-Za-z0-9_]*"


class FeatureColumn(Settings):
    """A further feature of the records: a column of the table, and how its values are read."""

    column: str | None = Field(None, description="Column of the table; unset: the name of the feature")
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


def _by_name(value: object) -> object:
    """Accept a list of columns, and names with their columns."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list | tuple):
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
            raise ValueError(
                f"{name!r} is no name of a feature: write letters, digits and _, as in "
                f'features = {{ width_cm = "{name}" }}'
            )
        if name in RESERVED_NAMES:
            raise ValueError(
                f"{name!r} is a name that every record or index has: give the feature another, as in "
                f'features = {{ my_{name} = "{name}" }}'
            )
    return features


FeatureColumns = Annotated[
    dict[str, FeatureColumn], BeforeValidator(_by_name), AfterValidator(_with_own_names)
]


class TableConfig(Settings):
    """The table of ``source.kind = "table"``. Its rows name image files and their labels."""

    file: str | None = Field(
        None,
        description=("The table: a path relative to the source, an absolute path, a URI or a pattern"),
    )
    format: TableFormat = Field(
        "auto",
        description=(
            "csv: text with a header line; jsonl: a JSON object a line; auto: by the ending .csv, "
            ".tsv, .txt, .jsonl, .ndjson, .parquet or .pq"
        ),
    )
    path_column: str = Field(
        "path",
        description="Column with the image's path relative to the source; its ending may be missing",
    )
    label_column: str = Field(
        "label", description="Column with the class; with labels = multi a list of labels"
    )
    label_separator: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Text between several labels in label_column"
    )
    label_columns: tuple[str, ...] = Field(
        (),
        description="Columns of 0 and 1, one a label; in place of label_column",
    )
    target_columns: tuple[str, ...] = Field(
        (), description="Columns with the numbers to predict; in place of label_column"
    )
    mask_column: str | None = Field(
        None,
        description="Column with the mask's path; in place of label_column",
    )
    split_column: str | None = Field(
        None, description="Column with the split (train, val, test); an empty value is chosen"
    )
    group_column: str | None = Field(
        None, description="Column with the key of images that must stay in one split (a patient, a video)"
    )
    prefix: str = Field(
        "",
        description=(
            "Folder within the source in which relative paths begin; . for the source, {folder} for "
            "each table's own; unset: either of these"
        ),
    )
    drop_labels: tuple[str, ...] = Field(
        (), description="Labels whose rows are left out, as the table writes them"
    )
    merge_labels: dict[str, str] = Field(
        {}, description="Label as the table writes it to the name of its class"
    )
    class_names: tuple[str, ...] = Field(
        (), description="Names of the classes whose labels are numbers, from 0"
    )
    classes_file: str | None = Field(
        None,
        description="File with these names: a name a line, number:name a line, or JSON",
    )
    features: FeatureColumns = Field(
        {},
        description=(
            "Further features of the records: columns, or each feature's name with its column or a "
            "table of column, dtype, separator, length"
        ),
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = Field(
        None, description="Character between the values of csv; unset: the one that gives the columns above"
    )
    quotes: bool = Field(True, description="Values of csv may stand in double quotes")
    encoding: str | None = Field(
        None, description="Encoding of csv and jsonl; unset: as a byte order mark says, else UTF-8"
    )

    @field_validator("drop_labels", "class_names", "label_columns", "target_columns", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("delimiter")
    @classmethod
    def _splits_lines(cls, delimiter: str | None) -> str | None:
        if delimiter is not None and (delimiter in '"\r\n' or not delimiter.isascii()):
            raise ValueError("must be an ASCII character, and neither a quote nor the end of a line")
        return delimiter

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str | None) -> str | None:
        try:
            if encoding is not None:
                "".encode(codecs.lookup(encoding).name)
        except LookupError as error:
            raise ValueError("no encoding that Python knows, such as cp1252 or utf-16") from error
        return encoding
