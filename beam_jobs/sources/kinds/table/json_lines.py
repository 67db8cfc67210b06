"""Tables of JSON lines: an object a line. A line without one becomes a row with a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import pyarrow as pa

from shardmill.beam_jobs.sources.kinds.table.columns import check_columns, rows_of
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.readable import shortened

_CHUNK_ROWS = 65_536  # rows that are Python values at a time
_SHOWN = 60  # characters of a broken line


def read_json_lines(table: str, text: bytes, wanted: Mapping[str, str]) -> pa.Table:
    """Read the wanted columns of JSON lines; empty lines are no rows.

    Args:
        table: name of the table, for errors.
        text: UTF-8.
        wanted: column of ROWS_SCHEMA -> key of the objects.

    Returns:
        ROWS_SCHEMA without ``table``, and columns of features as JSON.

    Raises:
        ConfigError: no object has one of the wanted keys.
    """
    lines = (line for line in text.splitlines() if line.strip())
    seen: dict[str, None] = {}
    schema = pa.schema([(name, pa.string()) for name in (*wanted, "fault")])
    parts = [schema.empty_table()]
    while chunk := list(islice(lines, _CHUNK_ROWS)):
        values = list(_values(chunk, wanted, seen))
        columns = [pa.array(column, pa.string()) for column in zip(*values, strict=True)]
        parts.append(pa.Table.from_arrays(columns, schema=schema))
    rows = pa.concat_tables(parts)
    if seen:
        check_columns(table, list(seen), wanted)
    return rows_of({name: rows[name] for name in schema.names}, rows.num_rows)


def _values(
    lines: list[bytes], wanted: Mapping[str, str], seen: dict[str, None]
) -> Iterator[tuple[str | None, ...]]:
    """The wanted values of each line and its fault; adds the keys of all objects to ``seen``."""
    nothing = (None,) * len(wanted)
    keys = tuple(wanted.values())
    readers = [_json if name.startswith(PREFIX) else _text for name in wanted]
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            yield *nothing, f"it is not JSON: {_shown(line)}"
            continue
        if not isinstance(row, dict):
            yield *nothing, f"it is not a JSON object: {_shown(line)}"
            continue
        if not row.keys() <= seen.keys():
            seen.update(dict.fromkeys(row))
        try:
            yield *(read(row.get(key)) for key, read in zip(keys, readers, strict=True)), None
        except ValueError as error:
            yield *nothing, f"{error}: {_shown(line)}"


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        value.encode()  # half a surrogate pair is no text
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ValueError("it holds a list or an object in place of a text")


def _json(value: Any) -> str | None:
    """Return a value of a feature as JSON, which ``typed`` reads; None if there is none."""
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False)
    text.encode()  # half a surrogate pair is no text
    return text


def _shown(line: bytes) -> str:
    return repr(shortened(line.decode("utf-8", "replace"), _SHOWN))


Kind = Literal["int64", "float", "text", "mixed"]


@dataclass(frozen=True)
class JsonColumn:
    """A column of JSON values.

    Attributes:
        values: string, or list of string; null where there is none.
        kind: of all its values: whole numbers, numbers, texts, or both; None if there is no value.
        faults: row -> why its value cannot be used.
    """

    values: pa.ChunkedArray
    kind: Kind | None
    faults: dict[int, str]


def read_json_column(column: pa.ChunkedArray) -> JsonColumn:
    """Read a column of JSON texts (string; null where a row has no value)."""
    rows = [value for _, value in _decoded(column)]
    values = [value for value in rows if value is not None]
    num_lists = sum(isinstance(value, list) for value in values)
    has_lists = num_lists > 0 and len(values) <= 2 * num_lists  # a few odd rows do not decide
    faults: dict[int, str] = {}
    kinds: set[str] = set()
    texts = [_texts(row, value, has_lists, kinds, faults) for row, value in enumerate(rows)]
    kind = pa.list_(pa.string()) if has_lists else pa.string()
    chunks = [
        pa.array(texts[start : start + _CHUNK_ROWS], kind) for start in range(0, len(texts), _CHUNK_ROWS)
    ]
    return JsonColumn(pa.chunked_array(chunks, kind), _kind(kinds), faults)


def _decoded(column: pa.ChunkedArray) -> Iterator[tuple[int, Any]]:
    row = 0
    for start in range(0, len(column), _CHUNK_ROWS):
        for text in column.slice(start, _CHUNK_ROWS).to_pylist():
            yield row, None if text is None else json.loads(text)
            row += 1


def _texts(row: int, value: Any, has_lists: bool, kinds: set[str], faults: dict[int, str]) -> Any:
    """Return a value as a text or a list of texts; None if it is neither."""
    if value is None:
        return None
    if has_lists != isinstance(value, list):
        faults[row] = (
            "is one value, where other rows have a list"
            if has_lists
            else "is a list, where other rows have one value"
        )
        return None
    values = value if has_lists else [value]
    if any(isinstance(one, list | dict) for one in values):
        faults[row] = "holds a list or an object in place of a value"
        return None
    try:
        "".join(one for one in values if isinstance(one, str)).encode()
    except UnicodeEncodeError:
        faults[row] = "holds half a character of a pair"
        return None
    kinds.update(_kind_of(one) for one in values if one is not None)
    texts = [None if one is None else _text_of(one) for one in values]
    return texts if has_lists else texts[0]


def _kind_of(value: str | float | bool) -> str:
    if isinstance(value, str):
        return "text"
    return "float" if isinstance(value, float) else "int64"


def _text_of(value: str | float | bool) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(int(value) if isinstance(value, bool) else value)


def _kind(kinds: set[str]) -> Kind | None:
    if not kinds:
        return None
    if kinds == {"text"}:
        return "text"
    if "text" in kinds:
        return "mixed"
    return "float" if "float" in kinds else "int64"
