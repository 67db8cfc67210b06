"""The tables of a source: found by a path or a pattern, and read as text columns."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardmill.beam_jobs.config import SourceConfig, TableConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table.columns import (
    ROWS_SCHEMA,
    as_text,
    check_columns,
    rows_of,
    wanted_columns,
)
from shardmill.beam_jobs.sources.kinds.table.delimited import Marks, read_delimited, to_utf8
from shardmill.beam_jobs.sources.kinds.table.json_lines import read_json_lines
from shardmill.beam_jobs.sources.kinds.table.typed.features import (
    joined_features,
    typed_features,
    with_faults,
)
from shardmill.beam_jobs.sources.kinds.table.typed.labels import label_columns, with_labels
from shardmill.beam_jobs.tables.columns import without_broken_texts
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import (
    absolute_path,
    below,
    fault_of_key,
    name_of,
    public_location,
    uri_of,
)

_FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv",
    ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Table:
    """One file with rows.

    Attributes:
        folder: the storage that it lies in.
        path: relative to ``folder``.
        name: for people and for the URIs of rows: relative to the source if it lies in it.
        uri: the URI of the file in the source, or None if it lies elsewhere.
    """

    folder: Storage
    path: str
    name: str
    uri: str | None


def find_tables(source: SourceFolder, settings: TableConfig) -> list[Table]:
    """Find the tables that ``source.table.file`` names, sorted by path.

    Raises:
        NotFoundError: there is none. ConfigError: the path is wrong.
    """
    return find_files_named(source, settings.file or "", "source.table.file")


def find_files_named(source: SourceFolder, given: str, setting: str) -> list[Table]:
    """Find the files of a path or pattern, sorted by path.

    Args:
        source: the source.
        given: relative to the source, an absolute path, or a URI.
        setting: that it is the value of, for errors.

    Raises:
        NotFoundError: there is none. ConfigError: the path is wrong.
    """
    root = source.location if not source.is_local else name_of(source.location)
    location, pattern = _folder_and_pattern(name_of(given), root)
    storage = Storage.at(location)
    if not pattern or ".." in pattern.split("/"):
        raise ConfigError(f"{setting} = {given!r} names no file", "give a path without ..")
    paths = [pattern] if _is_file(storage, pattern) else _matching(storage, pattern)
    if not paths:
        raise NotFoundError(
            f"there is no table {public_location(below(location, pattern))}",
            f"{setting} is relative to the source, an absolute path or a URI",
        )
    return [_table(storage, path, root) for path in paths]


def _folder_and_pattern(given: str, root: str) -> tuple[str, str]:
    """Return the folder that the setting begins in, and the path or pattern below it."""
    is_uri = "://" in given
    if not is_uri and not given.startswith(("/", "~")):
        return root, given.removeprefix("./")
    place, mark, options = given.partition("?") if is_uri else (absolute_path(given), "", "")
    folder, _, pattern = place.rpartition("/")
    while _WILD.search(folder):
        folder, _, part = folder.rpartition("/")
        pattern = f"{part}/{pattern}"
    return f"{folder or '/'}{mark}{options}", pattern


def _is_file(storage: Storage, path: str) -> bool:
    try:
        storage.size(path)
    except NotFoundError:
        return False
    return True


def _matching(storage: Storage, pattern: str) -> list[str]:
    """The files of a folder that match a pattern, part by part: ``*`` does not match a slash."""
    if not _WILD.search(pattern):
        return []
    parts = pattern.split("/")
    fixed = 0
    while not _WILD.search(parts[fixed]):
        fixed += 1
    top = "/".join(parts[:fixed])
    files = storage.list_files(top, recursive=len(parts) > fixed + 1)
    return [
        file.path
        for file in files
        if file.path.count("/") == pattern.count("/")
        and (storage.is_local or fault_of_key(file.path) is None)  # the walk has a row for such an object
        and all(map(fnmatch.fnmatchcase, file.path.split("/"), parts))
    ]


def _table(storage: Storage, path: str, root: str) -> Table:
    place = below(public_location(storage.location), path)
    within = f"{public_location(root).rstrip('/')}/"
    uri = uri_of(place.removeprefix(within)) if place.startswith(within) else None
    return Table(storage, path, uri if uri is not None else uri_of(place), uri)


def read_tables(tables: list[Table], settings: SourceConfig) -> pa.Table:
    """Read the rows of all tables: ROWS_SCHEMA and columns of features, in order.

    Args:
        tables: tables of a source.
        settings: of the source; labels of kind multi and targets are a column of features.

    Raises:
        ConfigError: a table cannot be read as the settings say. NotFoundError: there is no row.
    """
    columns, kind = settings.columns, settings.label_kind
    label = columns.label_column
    wanted = columns.further | label_columns(columns, kind, columns.mask or label)
    parts, typed = [], []
    for number, table in enumerate(tables):
        rows, form, how_read = read_rows(table, settings.table, wanted_columns(columns, wanted, kind))
        typed.append(typed_features(table.name, rows, wanted, form))
        rows = with_faults(rows, typed[-1])
        log_rows(table, rows, how_read)
        rows = rows.select([name for name in ROWS_SCHEMA.names if name != "table"])
        parts.append(rows.add_column(0, "table", pa.array([number] * rows.num_rows, pa.int32())))
    rows = pa.concat_tables(parts)
    of_features = joined_features(typed, wanted)
    for field in of_features.schema:
        rows = rows.append_column(field, of_features[field.name])
    rows = with_labels(rows, columns, kind, label).combine_chunks()
    if not rows.num_rows:
        raise NotFoundError(
            f"the table {tables[0].name} has no row", "give a table with a row for each image"
        )
    return rows


def read_rows(table: Table, settings: TableConfig, wanted: Mapping[str, str]) -> tuple[pa.Table, str, str]:
    """Read the wanted columns of one table.

    Args:
        table: to read.
        settings: settings of its format.
        wanted: column of ROWS_SCHEMA, or ``feature:NAME`` -> column of the table; ``path`` is one of them.

    Returns:
        ROWS_SCHEMA without the column ``table``; columns of features behind it: text of csv, JSON of jsonl,
        or any type of parquet; the format; and how the table was read, for people.

    Raises:
        ConfigError: the table cannot be read as the settings say, or lacks a column.
    """
    kind = _format_of(table, settings)
    if kind == "parquet":
        with table.folder.open_input(table.path) as stream:
            return read_parquet(table.name, stream, wanted), kind, "Parquet"
    text, encoding = to_utf8(table.name, table.folder.read_bytes(table.path), settings.encoding)
    if kind == "jsonl":
        return read_json_lines(table.name, text, wanted), kind, f"JSON lines in {encoding}"
    marks = Marks(settings.delimiter, settings.quotes)
    rows, delimiter = read_delimited(table.name, text, wanted, marks)
    return rows, kind, f"text in {encoding} with {delimiter!r} between values"


def log_rows(table: Table, rows: pa.Table, told: str) -> None:
    """Log how a table was read, and how many of its rows are broken."""
    num_broken = rows.num_rows - pc.sum(pc.is_null(rows["fault"])).as_py() if rows.num_rows else 0
    broken = f", {num_broken:,} of them broken" if num_broken else ""
    log(f"the table {table.name} was read as {told}: {rows.num_rows:,} rows{broken}")


def _format_of(table: Table, settings: TableConfig) -> str:
    if settings.format != "auto":
        return settings.format
    ending = re.search(r"\.[^./]*$", table.path.lower())
    if ending is None or ending[0] not in _FORMATS:
        raise ConfigError(
            f"the ending of the table {table.name} does not tell its format",
            "say --set source.table.format=csv, jsonl or parquet",
        )
    return _FORMATS[ending[0]]


# What reading a damaged file raises; a name of a column that is not UTF-8 is a ValueError.
PARQUET_DAMAGES = (pa.ArrowException, OSError, ValueError)


def read_parquet(table: str, stream: pa.NativeFile, wanted: Mapping[str, str]) -> pa.Table:
    """Read the wanted columns of a Parquet file.

    Args:
        table: name of the table, for errors.
        stream: the open file.
        wanted: column of ROWS_SCHEMA -> column of the file.

    Returns:
        ROWS_SCHEMA without ``table``, and columns of features with the types of the file. A row with a text
        that is not UTF-8 has a fault.

    Raises:
        ConfigError: it is no Parquet file, lacks a wanted column, or a column holds no text.
    """
    try:
        file = pq.ParquetFile(stream)
        check_columns(table, file.schema_arrow.names, wanted)
        found, faults = without_broken_texts(file.read(columns=list(dict.fromkeys(wanted.values()))))
    except PARQUET_DAMAGES as error:
        raise ConfigError(
            f"the table {table} cannot be read as Parquet: {first_line(error)}",
            "write it again, or say what it is with source.table.format",
        ) from error
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        name: found[column] if name.startswith(PREFIX) else as_text(table, column, found[column])
        for name, column in wanted.items()
    }
    return rows_of({**columns, "fault": faults}, found.num_rows)


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or its name if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
