"""Recognise a table of images, or of their addresses, by the names of its columns."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.class_names import parse_names, quoted
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.table.delimited import cut_head
from shardmill.beam_jobs.sources.recognition.glance import IMAGE_ENDINGS, Glance, Recognised, cli_for
from shardmill.beam_jobs.sources.recognition.naming import (
    SUBMISSION,
    NamedImages,
    has_other_target,
    image_columns,
    label_column,
)
from shardmill.beam_jobs.sources.roles import (
    ADDRESS_NAMES,
    LABEL_NAMES,
    LIST_NAMES,
    PATH_NAMES,
    split_of_words,
)

TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")
_HEAD_BYTES = 1 << 16
_METADATA = re.compile(r"metadata\.(csv|jsonl|parquet)")
FILE_NAME = "file_name"  # the column of paths in such a table
_READINGS = 4  # tables that are named where several fit
_MAX_TABLES = 20  # whose columns are looked at
_ROWS_TRIED = 6  # whose images are looked for
_ROWS_CUT = 200  # whose labels are looked at
_FOLDERS_TRIED = 8
_COMMON_ENDINGS = (".jpg", ".jpeg", ".png")
_NOT_BELOW = re.compile(r"^/|://|(^|/)\.\.(/|$)")  # a path that is not to be looked for in folders


def recognise_table(glance: Glance, settings: SourceConfig, *, of_addresses: bool) -> Recognised | None:
    """Return the one table that names the images of a source, or their addresses; None if there is none.

    It has a column of paths or addresses and, unless the settings say that images have no labels, one of
    labels or all columns that the settings name. If several tables might, the user is asked; but files named
    ``metadata.csv`` (also .jsonl, .parquet) in several folders are one table, as Hugging Face's ImageFolder
    reads them.

    Args:
        glance: at the source.
        settings: kind of the labels, and names of columns that the user gave.
        of_addresses: whether the table holds addresses, not paths.
    """
    if not of_addresses and not glance.images and glance.folder.only is None:
        return None  # there is nothing that a table could name
    found = {}
    every = glance.ending_in(*TABLE_ENDINGS)
    if not of_addresses and (metadata := [uri for uri in every if is_metadata(uri)]):
        return _of_metadata(metadata, glance, settings)
    tables = [uri for uri in every if uri.count("/") <= 1][:_MAX_TABLES]
    for uri in [uri for uri in tables if uri == settings.table.file] or tables:
        named = _named(glance, uri, settings, ADDRESS_NAMES if of_addresses else PATH_NAMES)
        if named is not None:
            found[uri] = _recognised(glance, uri, named, settings, of_addresses=of_addresses)
    found = {uri: one for uri, one in found.items() if not _is_template(glance, uri, one, tables)}
    if len(found) < 2:
        return next(iter(found.values()), None)
    kind = "urls" if of_addresses else "table"
    return Recognised(
        f"{quoted(list(found))} each name images",
        image_folders={folder for one in found.values() for folder in one.image_folders},
        readings=[cli_for(kind, one.settings) for one in list(found.values())[:_READINGS]],
    )


def _is_template(glance: Glance, uri: str, seen: Recognised, tables: Sequence[str]) -> bool:
    """Tell whether a table is the template for the answers of a competition, whose labels are none.

    Its name says so, and its images lie in a folder for tests, or another table names them without labels.
    """
    if not SUBMISSION.search(uri.rpartition("/")[2]):
        return False
    if any(split_of_words(part) == "test" for folder in seen.image_folders for part in folder.split("/")):
        return True
    named = _first_values(glance, uri, seen.settings["columns"]["image"])
    label = seen.settings["columns"].get("label")
    return any(
        label not in (columns := columns_of(glance, other))
        and named == _first_values(glance, other, columns[0])
        for other in tables
        if other != uri and columns_of(glance, other)
    )


def is_metadata(uri: str) -> bool:
    """Tell whether a table is named as those of Hugging Face's ImageFolder."""
    return _METADATA.fullmatch(uri.rpartition("/")[2].lower()) is not None


def _of_metadata(tables: list[str], glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise the layout of Hugging Face's ImageFolder: a table beside the images of each split."""
    path = settings.columns.image or FILE_NAME
    tables = [uri for uri in tables if path in columns_of(glance, uri)]
    if not tables:
        return None
    folders = [uri.rpartition("/")[0] for uri in tables]
    verb = "names" if len(tables) == 1 else "name"
    why = f"{quoted(tables)} {verb} images as Hugging Face's ImageFolder does"
    places = [uri.split("/") for uri in tables]
    pattern = "/".join(names[0] if len(set(names)) == 1 else "*" for names in zip(*places, strict=False))
    named = [_named(glance, uri, settings, (path,)) for uri in tables]
    columns = named[0]
    if len(set(map(len, places))) > 1 or any(one != columns for one in named):
        columns = None
    if columns is not None:
        found = {"table": {"file": pattern}, "columns": columns}
        return Recognised(why, found, is_certain=True, image_folders=folders)
    table, image = {"file": pattern}, {"image": path}
    others = quoted([name for name in columns_of(glance, tables[0], floats=True) if name != path])
    readings = [
        f"{cli_for('table', {'table': table, 'columns': image | {'label': 'COLUMN'}})} (it has {others})",
        f"{cli_for('table', {'labels': 'none', 'table': table, 'columns': image})} if there are no labels",
    ]
    return Recognised(why, is_certain=True, image_folders=folders, readings=readings)


def _recognised(
    glance: Glance, uri: str, columns: Mapping[str, str], settings: SourceConfig, *, of_addresses: bool
) -> Recognised:
    """Return a table that has these columns."""
    path = columns["image"]
    why = f"{uri} names {'addresses of images' if of_addresses else 'images'} in its column {path!r}"
    if "label" in columns:
        why += f" and labels in {columns['label']!r}"
    if of_addresses:
        return Recognised(why, {"table": {"file": uri}, "columns": columns})
    prefix = _prefix_of(_first_values(glance, uri, path), glance, settings.table.prefix)
    within = {"prefix": prefix} if prefix else {}
    folders = () if prefix is None else (prefix,)
    return Recognised(why, {"table": {"file": uri, **within}, "columns": columns}, image_folders=folders)


def _prefix_of(names: Sequence[str], glance: Glance, given: str) -> str | None:
    """Return the folder that the paths of a table begin in; None if its first images are not found.

    Args:
        names: paths of the first rows; their endings may be missing.
        glance: at the source.
        given: the folder as the user says; "" if not.
    """
    if given:
        return given
    seen = {path: uri for uri in glance.images for path in (uri, uri.rpartition(".")[0])}
    folders = dict.fromkeys(["", *(uri.rpartition("/")[0] for uri in glance.images)])
    found = set()
    for name in (name.removeprefix("./") for name in names if not _NOT_BELOW.search(name)):
        tails = {path.removesuffix(name).rstrip("/") for path in seen if f"/{path}".endswith(f"/{name}")}
        if not tails:  # a glance sees some of the files of a large folder
            places = [(folder, f"{folder}/{name}".lstrip("/")) for folder in list(folders)[:_FOLDERS_TRIED]]
            endings = ("",) if name.lower().endswith(IMAGE_ENDINGS) else _COMMON_ENDINGS
            tails = {at for at, path in places if any(glance.head(f"{path}{end}", 1) for end in endings)}
        found |= tails
    return found.pop() if len(found) == 1 else None


def _first_values(glance: Glance, uri: str, column: str) -> list[str]:
    """Return the texts in the first rows of a column of a table; none if they cannot be read."""
    if uri.lower().endswith((".parquet", ".pq")):
        try:
            with glance.folder.open_container(uri) as file:
                rows = next(
                    pq.ParquetFile(pa.PythonFile(file, mode="r")).iter_batches(_ROWS_TRIED, columns=[column])
                )
        except (SourceFault, pa.ArrowException, OSError, StopIteration):
            return []
        values = rows.column(0).to_pylist()
    else:
        lines = _lines(glance, uri)[: _ROWS_TRIED + 1]
        try:
            if uri.lower().endswith(("jsonl", ".ndjson")):
                objects = [json.loads(line) for line in lines[:_ROWS_TRIED]]
                values = [one.get(column) for one in objects if isinstance(one, dict)]
            else:
                header, *rows = cut_head(lines)
                values = [row[header.index(column)] for row in rows if len(row) == len(header)]
        except (ValueError, csv.Error):
            return []
    return [str(value).strip() for value in values if value not in (None, "")]


def _lines(glance: Glance, uri: str) -> list[str]:
    """Return the first lines of a table of text, all of them whole."""
    head = glance.head(uri, _HEAD_BYTES)
    lines = head.decode("utf-8-sig", "replace").splitlines()
    return lines[:-1] if len(head) == _HEAD_BYTES and len(lines) > 1 else lines


def columns_of(glance: Glance, uri: str, *, floats: bool = False) -> list[str]:
    """Return the names of the columns of text or whole numbers in a table; none if they cannot be read.

    Args:
        glance: at the source.
        uri: URI of the table.
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
        return cut_head(lines[:1])[0]
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
        header, first = cut_head(lines)
    except (ValueError, csv.Error):
        return []
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


def _every_column(glance: Glance, uri: str) -> list[str]:
    """Return the names of all columns of a table; none if they cannot be read."""
    if uri.lower().endswith((".parquet", ".pq")):
        return list(_schema(glance, uri).names)
    if not uri.lower().endswith(("jsonl", ".ndjson")):
        return columns_of(glance, uri)
    try:
        row = json.loads(next(iter(_lines(glance, uri)), ""))
    except ValueError:
        return []
    return list(row) if isinstance(row, dict) else []


def _named(glance: Glance, uri: str, settings: SourceConfig, paths: Sequence[str]) -> dict[str, str] | None:
    """Return the settings that name the columns of paths and labels, if a table has all that it needs."""
    given = settings.columns
    columns, every = columns_of(glance, uri), _every_column(glance, uri)
    path = _first_of(columns, paths, given.image)
    header, rows = _cut(glance, uri) if paths is PATH_NAMES else ([], [])
    if given.image is None and header:
        path = _naming_images(NamedImages(glance), header, rows, path)
    if path is None:
        return None
    found = {"image": path}
    needed = [*given.label_columns, *given.target_columns, *([given.mask] if given.mask else [])]
    needed += [feature.column or name for name, feature in given.further.items()]
    if not set(needed) <= set(every):
        return None
    if settings.label_kind in ("class", "multi") and not given.label_columns:
        of_labels = columns if settings.label_kind == "class" else every
        label = _first_of(of_labels, LABEL_NAMES, given.label)
        if label is None and given.label is None and settings.label_kind == "class" and path in header:
            at = label_column(header, rows, header.index(path))
            label = None if at is None else header[at]
        if label is None or _repeats_folders(header, rows, path, label):
            return None
        if given.label is None and has_other_target(glance, every, label):
            return None
        more = _separator(header, rows, label) or _classes_file(glance, header, rows, label)
        return {**found, "label": label, **more}
    return found


def _cut(glance: Glance, uri: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the first rows of a table of text; nothing of other tables."""
    if not uri.lower().endswith((".csv", ".tsv")):
        return [], []
    try:
        header, *rows = cut_head(_lines(glance, uri)[: _ROWS_CUT + 1])
    except (csv.Error, ValueError):
        return [], []
    return [name.strip() for name in header], [row for row in rows if len(row) == len(header)]


def _repeats_folders(header: Sequence[str], rows: Sequence[Sequence[str]], path: str, label: str) -> bool:
    """Tell whether each label is the folder of its image: then the folders say as much."""
    if path not in header or label not in header:
        return False
    places = [(row[header.index(path)].split("/")[-2:-1], row[header.index(label)]) for row in rows]
    return bool(places) and all(folder == [name] for folder, name in places)


def _separator(header: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> dict[str, str]:
    """Return the setting of the text between several labels of an image; nothing if each has one."""
    values = [row[header.index(label)] for row in rows] if label in header else []
    marks = "|;, " if label.strip().lower() in LIST_NAMES else "|"
    found = next((mark for mark in marks if any(mark in value.strip() for value in values)), None)
    return {} if found is None else {"label_separator": found}


def _classes_file(
    glance: Glance, header: Sequence[str], rows: Sequence[Sequence[str]], label: str
) -> dict[str, str]:
    """Return the setting that names a JSON file with a name for each number among the labels."""
    numbers = {row[header.index(label)] for row in rows} if label in header else set()
    if not numbers or not all(number.isdecimal() for number in numbers):
        return {}
    for uri in [uri for uri in glance.ending_in(".json") if "/" not in uri]:
        try:
            names = parse_names(glance.head(uri, _HEAD_BYTES).decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if set(map(int, numbers)) <= names.keys():
            return {"classes_file": uri}
    return {}


def _naming_images(
    images: NamedImages, header: Sequence[str], rows: Sequence[Sequence[str]], usual: str | None
) -> str | None:
    """Return the column whose values name images of the source, first the one with a usual name."""
    order = image_columns(rows)
    if usual in header:
        order = [header.index(usual), *order]
    for at in order:
        if len(header) > 1 and images.place_of([row[at].strip() for row in rows[:_ROWS_TRIED]]) is not None:
            return header[at]
    return usual


def _first_of(columns: Sequence[str], names: Sequence[str], given: str | None) -> str | None:
    """Return the column that the user named, or else the first that has one of these names."""
    known = {name.strip().lower(): name for name in reversed(columns)}
    return next((known[name] for name in ((given.lower(),) if given else names) if name in known), None)
