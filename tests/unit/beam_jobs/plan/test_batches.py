"""The records of a shard lie in record batches of their own, however many shards come before it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shardmill.beam_jobs.assemble.shard_task import first_batches
from shardmill.beam_jobs.plan import PlannedShard
from shardmill.beam_jobs.plan.columns import PLAN_ROWS


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1], [[0]]),
        ([PLAN_ROWS, PLAN_ROWS], [[0], [1]]),
        ([PLAN_ROWS + 1, 5], [[0, 1], [2]]),
        ([5, 3 * PLAN_ROWS, 1], [[0], [1, 2, 3], [4]]),
    ],
)
def test_each_shard_has_batches_of_its_own(lengths: list[int], expected: list[list[int]]) -> None:
    shards = [PlannedShard("train", at, len(lengths), 0, length) for at, length in enumerate(lengths)]
    firsts = first_batches(shards)
    assert [list(range(*pair)) for pair in pairwise(firsts)] == expected
