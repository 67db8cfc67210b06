"""Shards: which are inherited, how many are new, and which record goes to which of them, at which place.

A shard of the earlier version whose records are all still wanted, each just as it stands there, is inherited
as it is. The records of the others, and those that are new, are dealt: of each split, sorted by class and
then by hash, in turn, so that the shards that one plan writes differ by at most one record and by at most one
of each class. Inside a shard another hash gives the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.config import PrepareConfig, ShardsConfig
from beam_jobs.plan.columns import rows_where
from beam_jobs.plan.hashing import PLACE, SHARD, UInt64, hash_ranks
from beam_jobs.plan.splits import Codes
from infra.contract import SPLITS

# Of a stored record apart from its image: the other features of the example, and the frame (bytes).
RECORD_OVERHEAD_BYTES = 176

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """A shard to be written: rows [start, start + length) of the planned records."""

    split: str
    index: int
    count: int
    start: int
    length: int


class Assembly(Protocol):
    """What is assembled: of a plan, or of a compaction."""

    def records_of(self, shard: PlannedShard) -> pa.Table:
        """PLAN_SCHEMA, in stored order."""

    @property
    def shards(self) -> list[PlannedShard]:
        """As ranges of the records."""

    @property
    def classes(self) -> list[str]:
        """Names by label."""


@dataclass(frozen=True)
class HeldShards:
    """The shards of the earlier version that may be inherited, record by record.

    Attributes:
        ids: uint64 [N], record ids, rising.
        shards: int32 [N], number of the shard that holds each.
        labels: int32 [N].
        splits: int8 [N], index into SPLITS.
        uris, groups: string [N], of each record's source.
        sizes: int64 [S], how many records each shard holds.
    """

    ids: UInt64
    shards: Int32
    labels: Int32
    splits: Codes
    uris: pa.Array
    groups: pa.Array
    sizes: Int64

    def homes(
        self, ids: UInt64, labels: Int32, splits: Codes, uris: pa.ChunkedArray, groups: pa.ChunkedArray
    ) -> Int32:
        """The shard in which each record lies just as it is wanted: int32 [M], -1 where none does.

        Args:
            ids: uint64 [M].
            labels: int32 [M]. splits: int8 [M]. uris, groups: string [M].
        """
        homes = np.full(len(ids), -1, np.int32)
        if not len(self.ids):
            return homes
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        same = (self.ids[at] == ids) & (self.labels[at] == labels) & (self.splits[at] == splits)
        wanted, held = np.flatnonzero(same), at[same]
        alike = _equal_text(self.uris.take(pa.array(held)), uris.take(pa.array(wanted)))
        alike &= _equal_text(self.groups.take(pa.array(held)), groups.take(pa.array(wanted)))
        homes[wanted[alike]] = self.shards[held[alike]]
        return homes

    def inherited(self, homes: Int32) -> npt.NDArray[np.bool_]:
        """Which shards are inherited, given the homes of all wanted records: bool [S]."""
        found = np.bincount(homes[homes >= 0], minlength=len(self.sizes))
        return np.asarray(found == self.sizes, np.bool_)


@dataclass(frozen=True)
class Dealt:
    """Attributes:
    order: int32 [P], the records to be written, shard after shard, each in stored order.
    shards: ranges of ``order``, train first.
    inherited: numbers of the earlier version's shards that stay as they are, rising.
    """

    order: Int32
    shards: list[PlannedShard]
    inherited: list[int]


def num_shards(num_examples: int, num_bytes: int, config: ShardsConfig) -> int:
    """How many shards a split of so many records and bytes has."""
    wanted = config.num_shards or -(-num_bytes // config.shard_bytes)
    return max(1, min(wanted, num_examples))


def deal(
    ids: UInt64,
    labels: Int32,
    splits: Codes,
    stored_bytes: Int64,
    config: PrepareConfig,
    held: HeldShards | None = None,
    homes: Int32 | None = None,
) -> Dealt:
    """Deal records to shards.

    Args:
        ids, labels, splits, stored_bytes: of each record, [N].
        config: shards and seed.
        held: shards that may be inherited.
        homes: int32 [N], where each record lies in them.
    """
    stays = np.zeros(len(ids), np.bool_)
    inherited: list[int] = []
    if held is not None and homes is not None and len(held.sizes):
        keep = held.inherited(homes)
        stays = (homes >= 0) & keep[homes]
        inherited = np.flatnonzero(keep).tolist()
    written = rows_where(~stays)
    new = ~stays if inherited else slice(None)  # which copies nothing
    by_class = written[np.lexsort((hash_ranks(ids[new], config.seed, SHARD), labels[new], splits[new]))]
    shard_of = np.empty(len(ids), np.int32)
    shards: list[PlannedShard] = []
    start = 0
    for code, split in enumerate(SPLITS):
        length = int((splits[new] == code).sum())
        if not length:
            continue
        members = by_class[start : start + length]
        num_bytes = int(stored_bytes[members].sum()) + length * RECORD_OVERHEAD_BYTES
        share = length / int((splits == code).sum())
        count = _num_new_shards(length, num_bytes, share, config.shards)
        turn = np.arange(length) % count
        shard_of[members] = len(shards) + turn
        sizes = np.bincount(turn, minlength=count)
        starts = start + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        shards += [
            PlannedShard(split, index, count, int(starts[index]), int(sizes[index])) for index in range(count)
        ]
        start += length
    del by_class
    order = written[np.lexsort((hash_ranks(ids[new], config.seed, PLACE), shard_of[new]))]
    return Dealt(order, shards, inherited)


def _num_new_shards(num_examples: int, num_bytes: int, share: float, config: ShardsConfig) -> int:
    """How many shards hold the part of a split that is written: where num_shards is given, its share."""
    if config.num_shards is None:
        return num_shards(num_examples, num_bytes, config)
    return max(1, min(round(config.num_shards * share), num_examples))


def _equal_text(one: pa.Array, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Row by row, with null equal to null: bool [N]."""
    other = other.combine_chunks() if isinstance(other, pa.ChunkedArray) else other
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    equal = pc.fill_null(pc.equal(one, other), False)
    return np.asarray(pc.or_(equal, both_null).to_numpy(zero_copy_only=False), np.bool_)
