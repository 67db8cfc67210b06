"""Columns of text take less memory, and say the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shardmill.beam_jobs.tables.columns import code_texts, share_empty_texts


def test_empty_columns_are_one_in_memory() -> None:
    none = pa.array([None] * 1000, pa.string())
    table = pa.table(
        {
            "uri": [f"{i}.jpg" for i in range(1000)],
            "reason": none,
            "count": pa.nulls(1000, pa.int64()),
            "message": pa.concat_arrays([none]),
            "split": pa.array([*[None] * 999, "train"], pa.string()),
        }
    )
    shared = share_empty_texts(table)
    assert shared.equals(table)
    assert shared.schema == table.schema
    addresses = [shared[name].chunk(0).buffers()[1].address for name in ("reason", "message")]
    assert len(set(addresses)) == 1


def test_a_table_without_such_columns_stays_as_it_is() -> None:
    table = pa.table({"uri": ["a"], "reason": pa.array([None], pa.string())})
    assert share_empty_texts(table) is table


@pytest.mark.parametrize(
    ("distinct", "codes"),
    [(0, pa.int8()), (1, pa.int8()), (128, pa.int8()), (129, pa.int16()), (40_000, pa.int32())],
)
def test_texts_that_repeat_are_codes(distinct: int, codes: pa.DataType) -> None:
    labels = [f"class {i}" for i in range(distinct)]
    chunks = pa.chunked_array([[*labels, None], labels], pa.string())
    table = pa.table({"uri": chunks, "label": chunks, "split": pa.nulls(len(chunks), pa.string())})
    coded = code_texts(table, ("label", "split", "no such column"))
    assert coded.schema.types == [
        pa.string(),
        pa.dictionary(codes, pa.string()),
        pa.dictionary(pa.int8(), pa.string()),
    ]
    assert coded.cast(table.schema).equals(table)
    assert code_texts(coded, ("label",)).equals(coded)
