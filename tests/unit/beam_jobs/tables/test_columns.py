"""Columns that are too long for one chunk with 32-bit offsets; here a limit of a few bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shardmill.beam_jobs.tables.columns import (
    in_one_chunk,
    lists_of,
    one_chunk,
    places_in,
    sorted_by,
    take_rows,
    with_short_offsets,
)
from shardmill.infra.errors import DataError

LIMIT = 20

TEXTS = ["delta", None, "alpha", "a somewhat longer text", "", "beta"]
TABLE = pa.table(
    {
        "text": pa.chunked_array([TEXTS[:2], TEXTS[2:3], TEXTS[3:]], pa.string()),
        "bytes": pa.chunked_array([[b"1", b"2"], [b"3"], [None, b"5", b"6"]], pa.binary()),
        "number": pa.chunked_array([[0, 1], [2], [3, 4, 5]], pa.int64()),
    },
    schema=pa.schema(
        [("text", pa.string()), ("bytes", pa.binary()), ("number", pa.int64())], metadata={"k": "v"}
    ),
)


@pytest.mark.parametrize("limit", [LIMIT, 1 << 20])
def test_rows_are_taken_whatever_the_length_of_a_column(limit: int) -> None:
    rows = pa.array([5, None, 0, 3, 3, 1])
    found = take_rows(TABLE, rows, limit)
    assert found.schema.equals(TABLE.schema, check_metadata=True)
    assert found.to_pylist() == TABLE.take(rows).to_pylist()
    none = take_rows(TABLE, np.empty(0, np.int64), limit)
    assert none.equals(TABLE.schema.empty_table())


@pytest.mark.parametrize("limit", [LIMIT, 1 << 20])
def test_rows_are_sorted_whatever_the_length_of_a_column(limit: int) -> None:
    found = sorted_by(TABLE, "text", limit)
    assert found["number"].to_pylist() == [4, 3, 2, 5, 0, 1]
    assert found.equals(TABLE.sort_by("text"))


@pytest.mark.parametrize("limit", [LIMIT, 1 << 20])
def test_places_are_found_whatever_the_length_of_a_column(limit: int) -> None:
    wanted = pa.chunked_array([["beta", "gamma"], ["delta"]], pa.string())
    assert places_in(wanted, TABLE["text"], limit).to_pylist() == [5, None, 0]


def test_only_a_long_column_gets_64_bit_offsets() -> None:
    assert one_chunk(TABLE["text"], LIMIT).type == pa.large_string()
    assert one_chunk(TABLE["bytes"], LIMIT).type == pa.large_binary()
    whole = in_one_chunk(TABLE)
    assert whole.schema.equals(TABLE.schema, check_metadata=True)
    assert whole.equals(TABLE)
    assert all(column.num_chunks == 1 for column in whole.columns)
    assert one_chunk(pa.chunked_array([], pa.string())).type == pa.string()


def test_64_bit_offsets_do_not_leave_the_rows_that_are_taken() -> None:
    wide = in_one_chunk(TABLE, LIMIT)
    assert wide.schema.types[:2] == [pa.large_string(), pa.large_binary()]
    assert take_rows(wide, pa.array([3, 0])).equals(TABLE.take(pa.array([3, 0])))
    assert with_short_offsets(wide).equals(TABLE)
    assert with_short_offsets(TABLE) is TABLE


def test_too_many_values_of_lists_are_refused_in_words() -> None:
    with pytest.raises(DataError, match="would hold 2,147,483,648 values") as caught:
        lists_of(pa.array([], pa.float32()), [1 << 30, 1 << 30])
    assert "drop_labels" in str(caught.value.remedy)
