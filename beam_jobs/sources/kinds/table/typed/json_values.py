"""Values of JSON lines as columns of texts: of one text a row, or a list of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

_CHUNK_ROWS = 65_536  # rows that are Python values at a time

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
    texts = [None if one is None else _text(one) for one in values]
    return texts if has_lists else texts[0]


def _kind_of(value: str | float | bool) -> str:
    if isinstance(value, str):
        return "text"
    return "float" if isinstance(value, float) else "int64"


def _text(value: str | float | bool) -> str:
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
