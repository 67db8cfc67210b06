"""Shards: how many, and which record goes to which of them, at which place.

Of each split, records sorted by class and then by hash are dealt in turn, so that the shards differ by at
most one record and by at most one of each class. Inside a shard another hash gives the order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beam_jobs.config import PrepareConfig, ShardsConfig
from beam_jobs.plan.hashing import PLACE, SHARD, UInt64, hash_ranks
from beam_jobs.plan.splits import Codes
from infra.contract import SPLITS

# Of a stored record apart from its image: the other features of the example, and the frame (bytes).
RECORD_OVERHEAD_BYTES = 176


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """A shard to be written: rows [start, start + length) of the planned records."""

    split: str
    index: int
    count: int
    start: int
    length: int


def num_shards(num_examples: int, num_bytes: int, config: ShardsConfig) -> int:
    """How many shards a split of so many records and bytes has."""
    wanted = config.num_shards or -(-num_bytes // config.shard_bytes)
    return max(1, min(wanted, num_examples))


def deal(
    ids: UInt64,
    labels: npt.NDArray[np.int64],
    splits: Codes,
    stored_bytes: npt.NDArray[np.int64],
    config: PrepareConfig,
) -> tuple[npt.NDArray[np.int64], list[PlannedShard]]:
    """(stored order of all records, shards as ranges of it)."""
    by_class = np.lexsort((hash_ranks(ids, config.seed, SHARD), labels, splits))
    shard_of = np.empty(len(ids), np.int64)
    shards: list[PlannedShard] = []
    start = 0
    for code, split in enumerate(SPLITS):
        length = int((splits == code).sum())
        if not length:
            continue
        members = by_class[start : start + length]
        num_bytes = int(stored_bytes[members].sum()) + length * RECORD_OVERHEAD_BYTES
        count = num_shards(length, num_bytes, config.shards)
        turn = np.arange(length) % count
        shard_of[members] = len(shards) + turn
        sizes = np.bincount(turn, minlength=count)
        starts = start + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        shards += [
            PlannedShard(split, index, count, int(starts[index]), int(sizes[index])) for index in range(count)
        ]
        start += length
    return np.lexsort((hash_ranks(ids, config.seed, PLACE), shard_of)), shards
