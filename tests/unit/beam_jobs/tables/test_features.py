"""Columns of features: equality of rows, and bytes that stand for equal rows."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.beam_jobs.tables.features import canonical_bytes, equal_rows

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-2, 2),
    pa.float32(): st.sampled_from([0.0, 1.5, math.nan]),
    pa.string(): st.sampled_from(["", "a", "ab"]),
    pa.binary(): st.sampled_from([b"", b"\0", b"\0\0"]),
}


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_rows_are_equal_as_their_values_are(kind: pa.DataType, listed: bool, data: st.DataObject) -> None:
    value: st.SearchStrategy[Any] = VALUES[kind]
    if listed:
        kind, value = pa.list_(kind), st.lists(value, max_size=3)
    rows = data.draw(st.lists(st.tuples(st.none() | value, st.none() | value), max_size=6))
    first, second = ([row[at] for row in rows] for at in (0, 1))
    one, other = pa.array([None, *first], kind).slice(1), pa.array(second, kind)
    expected = [is_same(*row) for row in rows]
    assert equal_rows(one, other).tolist() == expected
    assert equal_rows(pa.chunked_array([one]), other).tolist() == expected
    assert (canonical_bytes(one) == canonical_bytes(other)) == all(expected)


def test_what_lies_under_a_null_does_not_count() -> None:
    valid = pa.py_buffer(bytes([0b01]))
    one, other = (
        pa.Array.from_buffers(pa.int64(), 2, [valid, pa.array([1, junk]).buffers()[1]]) for junk in (5, 7)
    )
    assert equal_rows(one, other).all()
    assert canonical_bytes(one) == canonical_bytes(other)
