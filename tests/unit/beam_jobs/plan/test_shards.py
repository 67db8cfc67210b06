"""Shards that are inherited, and how many new ones there are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.plan.shards import HeldShards, RecordsToDeal, deal
from shardmill.infra.format.features import Feature

SIZE = Feature(name="size", dtype="float32").arrow_field("feature:")


def held(ids: list[int], shards: list[int]) -> HeldShards:
    return HeldShards(
        ids=np.array(ids, np.uint64),
        shards=np.array(shards, np.int32),
        labels=np.zeros(len(ids), np.int32),
        splits=np.zeros(len(ids), np.int8),
        said=pa.table(
            {
                "source_uri": [f"{number}.jpg" for number in ids],
                "group": pa.array([None if number % 2 else "g" for number in ids], pa.string()),
                "feature:size": pa.array([float(number) for number in ids], pa.float32()),
            },
            schema=pa.schema([("source_uri", pa.string()), ("group", pa.string()), SIZE]),
        ),
        sizes=np.bincount(shards),
    )


@pytest.mark.parametrize(
    ("ids", "change", "inherited", "written"),
    [
        ([1, 2, 3, 4], {}, [0, 1], []),
        ([1, 2, 3, 4, 5], {}, [0, 1], [5]),
        ([1, 2, 3], {}, [0], [3]),
        ([1, 2, 3, 4], {"label": 3}, [0], [3, 4]),
        ([1, 2, 3, 4], {"split": 1}, [1], [1, 2]),
        ([1, 2, 3, 4], {"uri": 2}, [1], [1, 2]),
        ([1, 2, 3, 4], {"group": 1}, [1], [1, 2]),
        ([1, 2, 3, 4], {"group": 2}, [1], [1, 2]),
        ([1, 2, 3, 4], {"size": 4}, [0], [3, 4]),
        ([], {}, [], []),
    ],
)
def test_a_shard_stays_where_all_its_records_are_wanted_as_they_are(
    ids: list[int], change: dict[str, int], inherited: list[int], written: list[int]
) -> None:
    before = held([1, 2, 3, 4], [0, 0, 1, 1])
    count = len(ids)
    labels = np.array([int(number == change.get("label")) for number in ids], np.int64)
    splits = np.array([int(number == change.get("split")) for number in ids], np.int8)
    said = pa.table(
        {
            "uri": [f"{'new' if number == change.get('uri') else ''}{number}.jpg" for number in ids],
            "group": [
                "h" if number == change.get("group") else None if number % 2 else "g" for number in ids
            ],
            "feature:size": [-1.0 if number == change.get("size") else float(number) for number in ids],
        },
        schema=pa.schema([("uri", pa.string()), ("group", pa.string()), SIZE]),
    )
    numbers = np.array(ids, np.uint64)
    records = RecordsToDeal(numbers, labels, labels, splits, np.ones(count, np.int64))
    homes = before.homes(records, said)
    dealt = deal(records, PrepareConfig(), before, homes)
    assert dealt.inherited == inherited
    assert sorted(numbers[dealt.order].tolist()) == written
    assert sum(shard.length for shard in dealt.shards) == len(written)


@pytest.mark.parametrize(
    ("num_new", "asked", "expected"), [(1, 10, 1), (20, 12, 2), (50, 10, 3), (900, 10, 9)]
)
def test_a_number_of_shards_is_shared_out(num_new: int, asked: int, expected: int) -> None:
    ids = np.arange(100 + num_new, dtype=np.uint64)
    before = held(list(range(100)), [number // 25 for number in range(100)])
    homes = np.where(ids < 100, ids // 25, -1).astype(np.int64).astype(np.int32)
    config = PrepareConfig.model_validate({"shards": {"num_shards": asked}})
    zeros = np.zeros(len(ids), np.int64)
    dealt = deal(RecordsToDeal(ids, zeros, zeros, zeros.astype(np.int8), zeros + 1), config, before, homes)
    assert dealt.inherited == [0, 1, 2, 3]
    assert len(dealt.shards) == expected
