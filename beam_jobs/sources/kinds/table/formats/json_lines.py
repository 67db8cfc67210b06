"""Tables of JSON lines: an object a line. A line without one becomes a row with a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.sources.kinds.table.formats.columns import check_columns, rows_of
from shardmill.beam_jobs.tables.features import PREFIX

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
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
