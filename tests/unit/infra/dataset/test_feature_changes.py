"""Columns of features are compared row by row, whatever their type."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.dataset.feature_changes import unequal

NUMBERS = st.none() | st.integers(0, 2)
FLOATS = st.none() | st.sampled_from([0.0, 1.5, math.nan])
TEXTS = st.none() | st.sampled_from(["", "a", "b"])


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (NUMBERS, pa.int64()),
        (FLOATS, pa.float32()),
        (TEXTS, pa.string()),
        (st.none() | st.lists(NUMBERS, max_size=3), pa.list_(pa.int64())),
        (st.none() | st.lists(FLOATS, max_size=3), pa.list_(pa.float32())),
        (st.none() | st.lists(TEXTS, max_size=3), pa.list_(pa.string())),
    ],
)
def test_rows_differ_where_their_values_differ(values: st.SearchStrategy[Any], kind: pa.DataType) -> None:
    @given(st.lists(st.tuples(values, values), max_size=8))
    def check(pairs: list[tuple[Any, Any]]) -> None:
        was, now = (pa.array([pair[side] for pair in pairs], kind) for side in (0, 1))
        assert unequal(was, now).tolist() == [not same(*pair) for pair in pairs]

    check()
