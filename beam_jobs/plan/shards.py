"""Shards: which ones are inherited, how many are new, and where each record is stored.

A shard of the previous version is inherited if all of its records are still wanted exactly as they stand
there. All other records are dealt to new shards: the records of a split, sorted by class and then by a hash,
go to its shards in turn. So the shards of a split that one plan writes differ by at most one record, and by
at most one of each class (of each set of labels, where an image has several). Another hash orders the records
inside a shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, ShardsConfig
from shardmill.beam_jobs.plan.columns import PLACE, SHARD, Codes, hash_ranks, rows_where
from shardmill.beam_jobs.tables.columns import find_ids
from shardmill.beam_jobs.tables.features import equal_rows, features_of, same_columns
from shardmill.beam_jobs.tables.ids import UInt64
from shardmill.infra.format.contract import SPLITS
from shardmill.infra.format.features import Feature

# Bytes of a stored record beside its image: the other features of the example, and the frame.
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
    """Shards and records to assemble, of a plan or of a compaction."""

    def records_of(self, shard: PlannedShard) -> pa.Table:
        """Return the records of a shard in stored order: PLAN_SCHEMA and columns of features."""

    @property
    def features(self) -> list[Feature]:
        """The further features of the records."""

    @property
    def shards(self) -> list[PlannedShard]:
        """The shards, as ranges of the records."""

    @property
    def classes(self) -> list[str]:
        """Names of the classes by label."""


@dataclass(frozen=True)
class RecordsToDeal:
    """The records of a version that shards are made of.

    Attributes:
        ids: uint64 [N], record ids.
        labels: int32 [N], number of the class.
        strata: int32 [N], the records of each are dealt in turn (``splits_by_kind.dealing_strata``).
        splits: int8 [N], index into SPLITS.
        stored_bytes: int64 [N], length of the stored image.
    """

    ids: UInt64
    labels: Int32
    strata: Int32
    splits: Codes
    stored_bytes: Int64


@dataclass(frozen=True)
class HeldShards:
    """The shards of the previous version that may be inherited, record by record.

    Attributes:
        ids: uint64 [N], record ids, rising.
        shards: int32 [N], number of the shard that holds each record.
        labels: int32 [N], number of the class.
        splits: int8 [N], index into SPLITS.
        said: what the source says of each: source_uri, group, and columns of features.
        sizes: int64 [S], number of records in each shard.
    """

    ids: UInt64
    shards: Int32
    labels: Int32
    splits: Codes
    said: pa.Table
    sizes: Int64

    def homes(self, records: RecordsToDeal, said: pa.Table) -> Int32:
        """Find the shard in which each wanted record is already stored exactly as wanted.

        Args:
            records: M records.
            said: what the source says of each: uri, group, and columns of features.

        Returns:
            int32 [M], number of the shard; -1 if there is none.
        """
        ids, labels, splits = records.ids, records.labels, records.splits
        homes = np.full(len(ids), -1, np.int32)
        if not len(self.ids) or not same_columns(features_of(self.said), features_of(said)):
            return homes
        at, found = find_ids(self.ids, ids)
        same = found & (self.labels[at] == labels) & (self.splits[at] == splits)
        wanted, held = np.flatnonzero(same), at[same]
        alike = np.ones(len(wanted), np.bool_)
        rows, stored = pa.array(wanted), pa.array(held)
        for name in said.column_names:
            before = self.said["source_uri" if name == "uri" else name]
            alike &= equal_rows(before.take(stored), said[name].take(rows))
        homes[wanted[alike]] = self.shards[held[alike]]
        return homes

    def inherited(self, homes: Int32) -> npt.NDArray[np.bool_]:
        """Return which shards are inherited, given the homes of all wanted records: bool [S]."""
        found = np.bincount(homes[homes >= 0], minlength=len(self.sizes))
        return np.asarray(found == self.sizes, np.bool_)


@dataclass(frozen=True)
class Dealt:
    """Assignment of records to shards.

    Attributes:
        order: int32 [P], positions of the records to be written, shard after shard, in stored order.
        shards: ranges of ``order``, train first.
        inherited: numbers of the previous version's shards that stay as they are, rising.
    """

    order: Int32
    shards: list[PlannedShard]
    inherited: list[int]


def num_shards(num_examples: int, num_bytes: int, config: ShardsConfig) -> int:
    """Return how many shards a split of so many records and bytes has."""
    wanted = config.num_shards or -(-num_bytes // config.shard_bytes)
    return max(1, min(wanted, num_examples))


def deal(
    records: RecordsToDeal,
    config: PrepareConfig,
    held: HeldShards | None = None,
    homes: Int32 | None = None,
) -> Dealt:
    """Deal records to shards.

    Args:
        records: N records.
        config: shards and seed.
        held: shards that may be inherited.
        homes: int32 [N], the shard of ``held`` in which each record is stored as wanted; -1 if there is none.
    """
    ids, strata, splits = records.ids, records.strata, records.splits
    stays = np.zeros(len(ids), np.bool_)
    inherited: list[int] = []
    if held is not None and homes is not None and len(held.sizes):
        keep = held.inherited(homes)
        stays = (homes >= 0) & keep[homes]
        inherited = np.flatnonzero(keep).tolist()
    written = rows_where(~stays)
    new = ~stays if inherited else slice(None)  # a slice copies nothing
    by_class = written[np.lexsort((hash_ranks(ids[new], config.seed, SHARD), strata[new], splits[new]))]
    lengths = np.bincount(splits[new], minlength=len(SPLITS))
    ends = np.cumsum(lengths)
    members = [by_class[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    cut = CutSplits.of(
        lengths,
        np.bincount(splits, minlength=len(SPLITS)),
        np.array([records.stored_bytes[rows].sum() for rows in members], np.int64),
        config.shards,
    )
    shard_of = np.empty(len(ids), np.int32)
    for first, count, rows in zip(cut.first_shard, cut.num_shards, members, strict=True):
        shard_of[rows] = first + np.arange(len(rows)) % count
    del by_class, members
    order = written[np.lexsort((hash_ranks(ids[new], config.seed, PLACE), shard_of[new]))]
    return Dealt(order, cut.shards, inherited)


@dataclass(frozen=True)
class CutSplits:
    """The shards, to which the records of each split are dealt in turn.

    Attributes:
        shards: train first.
        first_shard: int64 [splits], number of the first shard of each split.
        num_shards: int64 [splits], at least 1.
    """

    shards: list[PlannedShard]
    first_shard: Int64
    num_shards: Int64

    @classmethod
    def of(cls, lengths: Int64, wanted: Int64, stored_bytes: Int64, config: ShardsConfig) -> Self:
        """Choose the shards.

        Args:
            lengths: int64 [splits], number of records to be written.
            wanted: int64 [splits], these and the inherited ones.
            stored_bytes: int64 [splits], of the stored images of those to be written.
            config: how many shards, or how long ones.
        """
        shards: list[PlannedShard] = []
        first, num = np.zeros(len(SPLITS), np.int64), np.ones(len(SPLITS), np.int64)
        start = 0
        for code, split in enumerate(SPLITS):
            length = int(lengths[code])
            if not length:
                continue
            num_bytes = int(stored_bytes[code]) + length * RECORD_OVERHEAD_BYTES
            count = _num_new_shards(length, num_bytes, length / int(wanted[code]), config)
            first[code], num[code] = len(shards), count
            shards += _cut_split(split, start, length, count)
            start += length
        return cls(shards, first, num)


def _cut_split(split: str, start: int, length: int, count: int) -> list[PlannedShard]:
    """Return the shards of a split whose records are dealt to them in turn.

    Args:
        split: name of the split.
        start: position of its first record in the plan.
        length: number of its records.
        count: number of its shards, at most ``length``.
    """
    sizes = [length // count + (index < length % count) for index in range(count)]
    starts = accumulate(sizes, initial=start)
    return [
        PlannedShard(split, index, count, at, size)
        for index, (at, size) in enumerate(zip(starts, sizes, strict=False))
    ]


def _num_new_shards(num_examples: int, num_bytes: int, share: float, config: ShardsConfig) -> int:
    """Return how many shards the written part of a split has: its share of num_shards, if that is given."""
    if config.num_shards is None:
        return num_shards(num_examples, num_bytes, config)
    return max(1, min(round(config.num_shards * share), num_examples))
