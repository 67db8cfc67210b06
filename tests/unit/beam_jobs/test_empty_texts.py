"""Columns without any text share their memory, and nothing else about a table changes."""

from __future__ import annotations

import pyarrow as pa

from beam_jobs.empty_texts import share_empty_texts


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
