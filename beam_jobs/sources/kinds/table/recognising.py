"""Recognise a table of images, or of their addresses, by the names of its columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.config import SourceConfig, TableConfig
from beam_jobs.sources.files.walking import SourceFault
from beam_jobs.sources.recognition.glance import Glance, Recognised

TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")
_HEAD_BYTES = 1 << 16
_MAX_TABLES = 20  # whose columns are looked at
PATH_NAMES = (
    "path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "image_file",
    "image_name", "image_id", "img", "id",
)  # fmt: skip
_ADDRESSES = ("url", "image_url", "img_url", "image_link", "link", "coco_url", "flickr_url")
LABEL_NAMES = ("label", "class", "category", "target", "class_name", "label_name", "category_name")


def recognise_table(glance: Glance, settings: SourceConfig, *, of_addresses: bool) -> Recognised | None:
    """Return the one table that names the images of a source, or their addresses; None if there is none.

    If several tables might, none is chosen.

    Args:
        glance: at the source.
        settings: names of columns that the user gave.
        of_addresses: whether the table holds addresses, not paths.
    """
    if not of_addresses and not glance.images and glance.folder.only is None:
        return None  # there is nothing that a table could name
    found = {}
    for uri in [uri for uri in glance.ending_in(*TABLE_ENDINGS) if uri.count("/") <= 1][:_MAX_TABLES]:
        columns = columns_of(glance, uri)
        if (named := _named(columns, settings.table, _ADDRESSES if of_addresses else PATH_NAMES)) is not None:
            found[uri] = named
    if len(found) != 1:
        return None
    ((uri, (path, label)),) = found.items()
    what = "addresses of images" if of_addresses else "images"
    return Recognised(
        f"{uri} names {what} in its column {path!r} and labels in {label!r}",
        {"table": {"file": uri, "path_column": path, "label_column": label}},
    )


def columns_of(glance: Glance, uri: str, *, floats: bool = False) -> list[str]:
    """Return the names of the columns of text or whole numbers in a table; none if they cannot be read.

    Args:
        glance: at the source.
        uri: of the table.
        floats: also return those of other numbers.
    """
    if uri.lower().endswith((".parquet", ".pq")):
        return _columns_of_parquet(glance, uri, floats=floats)
    lines = glance.head(uri, _HEAD_BYTES).decode("utf-8-sig", "replace").splitlines()
    if not lines:
        return []
    if uri.lower().endswith(("jsonl", ".ndjson")):
        try:
            row = json.loads(lines[0])
        except ValueError:
            return []
        values = row.items() if isinstance(row, dict) else ()
        return [
            name for name, value in values if isinstance(value, str | int | float if floats else str | int)
        ]
    try:
        return max((next(csv.reader(lines[:1], delimiter=mark)) for mark in ",;\t|"), key=len)
    except csv.Error:
        return []


def list_columns_of(glance: Glance, uri: str) -> list[str]:
    """Return the names of the columns of a table that hold lists; of csv, texts of lists in its first row."""
    if uri.lower().endswith((".parquet", ".pq")):
        lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        return [field.name for field in _schema(glance, uri) if any(is_one(field.type) for is_one in lists)]
    lines = glance.head(uri, _HEAD_BYTES).decode("utf-8-sig", "replace").splitlines()[:2]
    if len(lines) < 2 and not uri.lower().endswith(("jsonl", ".ndjson")):
        return []
    try:
        if uri.lower().endswith(("jsonl", ".ndjson")):
            row = json.loads(lines[0]) if lines else None
            return (
                [name for name, value in row.items() if isinstance(value, list)]
                if isinstance(row, dict)
                else []
            )
        rows = [list(csv.reader(lines, delimiter=mark)) for mark in ",;\t|"]
    except (ValueError, csv.Error):
        return []
    header, first = max(rows, key=lambda found: len(found[0]))
    return [name for name, value in zip(header, first, strict=False) if value.lstrip().startswith("[")]


def _columns_of_parquet(glance: Glance, uri: str, *, floats: bool) -> list[str]:
    kinds = [pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_dictionary]
    kinds += [pa.types.is_floating] if floats else []
    return [field.name for field in _schema(glance, uri) if any(kind(field.type) for kind in kinds)]


def _schema(glance: Glance, uri: str) -> pa.Schema:
    """Return the columns of a Parquet file; none if it cannot be read."""
    try:
        with glance.folder.open_container(uri) as file:
            return pq.read_schema(pa.PythonFile(file, mode="r"))
    except (SourceFault, pa.ArrowException, OSError):
        return pa.schema([])


def _named(columns: Sequence[str], settings: TableConfig, paths: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of paths and labels, if both are there."""
    default = TableConfig()
    known = {name.strip().lower(): name for name in reversed(columns)}
    if settings.path_column != default.path_column:
        paths = (settings.path_column.lower(),)
    labels: Sequence[str] = LABEL_NAMES
    if settings.label_column != default.label_column:
        labels = (settings.label_column.lower(),)
    path = next((known[name] for name in paths if name in known), None)
    label = next((known[name] for name in labels if name in known), None)
    return None if path is None or label is None else (path, label)
