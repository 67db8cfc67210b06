"""Dealing of records to shards, from the number of records of each class in each range of hashes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import ShardsConfig
from shardmill.beam_jobs.plan.shards import CutSplits, PlannedShard
from shardmill.beam_jobs.plan_by_ranges.tables import Int64


@dataclass(frozen=True)
class RangeCounts:
    """The tables of a range of hashes.

    Attributes:
        written: int64 [splits, classes], records to be written.
        wanted: int64 [splits], these and the inherited ones.
        stored_bytes: int64 [splits], of the stored images of those to be written.
    """

    written: Int64
    wanted: Int64
    stored_bytes: Int64


@dataclass(frozen=True)
class Dealing:
    """The shards, and the turn at which the records of each range, split and class begin to be dealt.

    Attributes:
        cut: the shards.
        turns: int64 [ranges, splits, classes].
        starts: int64 [ranges + 1], first shard of each range of shards.
    """

    cut: CutSplits
    turns: Int64
    starts: Int64

    @classmethod
    def of(cls, counts: list[RangeCounts], config: ShardsConfig) -> Self:
        """Choose the shards, as ``shardmill.beam_jobs.plan.shards.deal`` does."""
        written = np.stack([one.written for one in counts])
        of_class = written.sum(axis=0)
        wanted = np.sum([one.wanted for one in counts], axis=0)
        stored_bytes = np.sum([one.stored_bytes for one in counts], axis=0)
        cut = CutSplits.of(of_class.sum(axis=1), wanted, stored_bytes, config)
        before_class = np.cumsum(of_class, axis=1) - of_class
        before_range = np.cumsum(written, axis=0) - written
        return cls(cut, before_range + before_class, _cut(cut.shards, len(counts)))

    def shards_of(self, placed: pa.Table) -> Int64:
        """Return the number of the shard of each record: int64 [records].

        Args:
            placed: source, split, stratum and turn (within its range, split and stratum) of each.
        """
        source, split, stratum = (placed[name].to_numpy() for name in ("source", "split", "stratum"))
        turn = self.turns[source, split, stratum] + placed["turn"].to_numpy()
        return np.asarray(self.cut.first_shard[split] + turn % self.cut.num_shards[split])

    def range_of_shards(self, shards: npt.NDArray[np.int64]) -> Int64:
        """Return the range that each shard is in: int64 [N]."""
        return np.searchsorted(self.starts, shards, side="right") - 1

    def lengths(self) -> list[int]:
        """Return the number of records in each range of shards."""
        bounds = self.starts.tolist()
        return [sum(shard.length for shard in self.cut.shards[low:high]) for low, high in pairwise(bounds)]


def _cut(shards: list[PlannedShard], ranges: int) -> Int64:
    """Cut the shards into ranges of about equally many records: int64 [ranges + 1], the first of each."""
    total = sum(shard.length for shard in shards)
    starts = np.array([shard.start for shard in shards], np.int64)
    wanted = np.arange(ranges) * total // ranges
    cut = np.searchsorted(starts, wanted)
    cut[0] = 0
    return np.append(cut, len(shards)).astype(np.int64)
