"""Tables of text with a header line: CSV, TSV and their relatives.

The delimiter is the one with which the header holds all wanted columns; where none or several do, the user is
asked. Rows with too few or too many values become rows with a fault.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from shardmill.beam_jobs.sources.kinds.table.columns import check_columns, rows_of
from shardmill.infra.errors import ConfigError
from shardmill.infra.readable import shortened

DELIMITERS = (",", "\t", ";", "|")

_HEADER_BYTES = 1 << 20  # a header lies within
_BLOCK_BYTES = 1 << 30  # parsed at a time
_SHOWN = 60  # characters of a broken row
# Written behind the last row: if it is not read as a row, a quote before it was never closed.
_END = "\x1eend\x1e"


@dataclass(frozen=True)
class Marks:
    """Characters with a meaning.

    Attributes:
        delimiter: between values, or None to find it.
        quotes: whether values may stand in double quotes.
    """

    delimiter: str | None = None
    quotes: bool = True


@dataclass
class _BrokenRows:
    """Rows with another number of values than the header."""

    numbers: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, row: pa_csv.InvalidRow) -> str:
        """Note a row, and tell Arrow to go on."""
        text = shortened(row.text, _SHOWN)
        values = "1 value" if row.actual_columns == 1 else f"{row.actual_columns} values"
        self.numbers.append(row.number - 1)  # the header counts
        self.faults.append(f"it has {values}, the header {row.expected_columns}: {text!r}")
        return "skip"


def read_delimited(table: str, text: bytes, wanted: Mapping[str, str], marks: Marks) -> tuple[pa.Table, str]:
    """Read the wanted columns of a text with a header line; empty lines are no rows.

    Args:
        table: name of the table, for errors.
        text: UTF-8.
        wanted: column of ROWS_SCHEMA -> name in the header.
        marks: delimiter and quotes.

    Returns:
        ROWS_SCHEMA without ``table``, and the delimiter.

    Raises:
        ConfigError: the header lacks a wanted column, or a quote is never closed.
    """
    text = text.lstrip(b"\r\n")
    if not text.strip():
        return rows_of(dict.fromkeys(wanted, pa.array([], pa.string())), 0), marks.delimiter or DELIMITERS[0]
    delimiter, header = _header(table, text, wanted, marks)
    # Arrow gets names of our own: those of the header may occur twice.
    keys = [str(at) for at in range(len(header))]
    chosen = {name: keys[header.index(column)] for name, column in wanted.items()}
    broken = _BrokenRows()
    end = delimiter.join([_END] * len(header))
    closed = pa.py_buffer(b"".join((text, b"\n", end.encode(), b"\n")))
    found = pa_csv.read_csv(
        pa.BufferReader(closed),
        read_options=pa_csv.ReadOptions(
            use_threads=False,  # or broken rows would have no number
            block_size=min(len(closed) + 1, _BLOCK_BYTES),
            column_names=keys,
            skip_rows_after_names=1,
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if marks.quotes else False,
            newlines_in_values=marks.quotes,
            invalid_row_handler=broken.add,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(keys, pa.string()),
            strings_can_be_null=False,
            include_columns=list(dict.fromkeys(chosen.values())),
        ),
    )
    total = found.num_rows + len(broken.numbers)
    if not found.num_rows or found[chosen["path"]][-1].as_py() != _END:
        raise ConfigError(
            f"a quote in the table {table} is never closed: its row {total:,} reaches to the end",
            "close the quote; or say --set source.table.quotes=false if quotes are part of values",
        )
    good = found.slice(0, found.num_rows - 1)
    columns = {name: good[key] for name, key in chosen.items()}
    return _numbered(columns, total - 1, broken), delimiter


def _numbered(columns: Mapping[str, pa.ChunkedArray], total: int, broken: _BrokenRows) -> pa.Table:
    """Bring whole and broken rows together, in the order of the table."""
    is_whole = np.ones(total, np.bool_)
    is_whole[np.array(broken.numbers, np.int64) - 1] = False
    numbers = np.flatnonzero(is_whole) + 1
    whole = rows_of({**columns, "number": pa.array(numbers, pa.int64())}, len(numbers))
    if not broken.numbers:
        return whole
    faults = {"number": pa.array(broken.numbers, pa.int64()), "fault": pa.array(broken.faults, pa.string())}
    lost = rows_of(faults, len(broken.numbers))
    return pa.concat_tables([whole, lost], promote_options="default").sort_by("number")


def _header(table: str, text: bytes, wanted: Mapping[str, str], marks: Marks) -> tuple[str, list[str]]:
    """Return the delimiter, and the names in the header."""
    delimiter = marks.delimiter
    tried = (delimiter,) if delimiter else DELIMITERS
    found = {mark: _first_row(table, text, mark, marks.quotes) for mark in tried}
    fits = [mark for mark, header in found.items() if set(wanted.values()) <= set(header)]
    if not fits and not delimiter:
        # None has the columns: tell of the header that the most names can be read from.
        most = max(len(header) for header in found.values())
        fits = [mark for mark, header in found.items() if len(header) == most > 1]
    if len(fits) > 1 and all(len(found[mark]) == 1 for mark in fits):
        # A single column: any delimiter will do that is in no value.
        fits = [next((mark for mark in fits if mark.encode() not in text), fits[0])]
    if delimiter is None and len(fits) != 1:
        first = " ".join(found[","])[:_SHOWN]
        raise ConfigError(
            f"the header of the table {table} does not tell its delimiter: {first!r}",
            "say it, for example --set source.table.delimiter=';'",
        )
    mark = delimiter or fits[0]
    check_columns(table, found[mark], wanted, _other_delimiter(found[mark]))
    return mark, found[mark]


def _other_delimiter(header: Sequence[str]) -> str | None:
    """Return the remedy for a header that the given delimiter does not cut, though another would."""
    others = [mark for mark in DELIMITERS if mark != "\t" and mark in header[0]] if len(header) == 1 else []
    if not others:
        return None
    other = others[0]
    return f"if {other!r} stands between its values, say --set 'source.table.delimiter={other}'"


def cut_head(lines: Sequence[str]) -> list[list[str]]:
    """Return the rows of the first lines of a table, cut at the delimiter that gives the most columns.

    Raises:
        csv.Error: a line cannot be read.
    """
    rows = [list(csv.reader(lines, delimiter=mark)) for mark in DELIMITERS]
    return max(rows, key=lambda cut: len(cut[0]) if cut else 0)


def _first_row(table: str, text: bytes, delimiter: str, quotes: bool) -> list[str]:
    head = io.StringIO(text[:_HEADER_BYTES].decode("utf-8", "ignore"), newline="")
    try:
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
        row = next(csv.reader(head, delimiter=delimiter, quoting=quoting), [])
    except csv.Error as error:
        raise ConfigError(
            f"the header of the table {table} cannot be read: {error}", "begin it with the names of columns"
        ) from error
    return [name.strip() for name in row]


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)


def to_utf8(table: str, data: bytes, encoding: str | None) -> tuple[bytes, str]:
    """Return a table as UTF-8 without a byte order mark, and the name of its encoding.

    Args:
        table: name of the table, for errors.
        data: its bytes.
        encoding: as the user says, or None.

    Raises:
        ConfigError: the bytes are not in that encoding; without one: they are not UTF-8 and have no mark.
    """
    if encoding is not None:
        return _decoded(table, data, encoding, f"--set source.table.encoding={encoding} is wrong"), encoding
    for mark, codec, name in _MARKS:
        if data.startswith(mark):
            return _decoded(table, data, codec, "save the table again"), name
    remedy = "say which encoding it has, for example --set source.table.encoding="
    if b"\0" in data:
        raise ConfigError(f"the table {table} holds zero bytes, as UTF-16 does", f"{remedy}utf-16-le")
    _decoded(table, data, "utf-8", f"{remedy}cp1252")
    return data, "UTF-8"


def _decoded(table: str, data: bytes, codec: str, remedy: str) -> bytes:
    try:
        text = data.decode(codec)
    except UnicodeError as error:
        place = ""
        if isinstance(error, UnicodeDecodeError):
            line = data.count(b"\n", 0, error.start) + 1
            place = f": the byte {data[error.start]:#04x} in line {line:,}"
        raise ConfigError(f"the table {table} is not {codec}{place}", remedy) from error
    return b"" if codec == "utf-8" else text.removeprefix("\ufeff").encode("utf-8", "replace")
