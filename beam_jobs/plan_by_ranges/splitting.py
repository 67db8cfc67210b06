"""Splits by ranges: the number of places of each class in each split, divided among the ranges.

The records that are in any group are in one process (``GroupedInRanges``), since their units, splits and
leaks depend on each other. There may be few of them or many: each takes about 150 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import SPLIT, Codes, hash_ranks
from shardmill.beam_jobs.plan.leaks import GroupedRecords
from shardmill.beam_jobs.plan.similarity.groups import Groups, units_of
from shardmill.beam_jobs.plan.similarity.near_duplicates import NearDuplicates
from shardmill.beam_jobs.plan.splits import (
    TRAIN,
    Labels,
    Units,
    fill_shortfalls,
    known_splits,
    place_units,
    round_shares,
)
from shardmill.beam_jobs.plan_by_ranges.tables import Int64, PlanTables, RangeTask, range_of
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.ids import UInt64

GROUPS, TO_KEYS = "groups", "to-keys"

MEMBER_COLUMNS = ("row", "uri", "id", "label", "given", "previous")


@dataclass(frozen=True)
class GroupByKey(RangeTask):
    """Groups the records whose files have a key in common, in each range of keys."""

    name: ClassVar[str] = "GroupByKey"
    output: ClassVar[str] = GROUPS
    received: ClassVar[tuple[str, ...]] = (TO_KEYS,)

    def do(self, number: int) -> None:
        """Write the memberships of a range of keys."""
        files = self.tables.receive(TO_KEYS, number).drop_columns(["source"])
        files = files.take(pa.array(np.argsort(files["file"].to_numpy())))
        coded = one_chunk(files["key"]).dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        groups = Groups.of(files["row"].to_numpy(), codes)
        _, first = np.unique(codes, return_index=True)
        members = files.take(pa.array(groups.order)).drop_columns(["file"])
        opened = files["file"].to_numpy()[first][codes[groups.order]]
        self.tables.write(GROUPS, number, members.append_column("opened_by", pa.array(opened)))


@dataclass(frozen=True)
class GroupedInRanges:
    """The records that are in groups.

    Attributes:
        table: MEMBER_COLUMNS of each and its perceptual hash if it is a near-duplicate, sorted by row.
        keyed: groups by key, of positions in the table.
        keys: string, the key of each group in ``keyed``.
        near: near-duplicates, of positions in the table; None if they were not looked for.
        ranks: uint64 [N], by which splits are divided.
        units: int32 [N], the first record of each record's unit; None if no record is in a group.
    """

    table: pa.Table
    keyed: Groups
    keys: pa.Array
    near: NearDuplicates | None
    ranks: UInt64
    units: Units | None

    @classmethod
    def of(cls, tables: PlanTables, near: NearDuplicates | None, near_members: pa.Table, seed: int) -> Self:
        """Bring the groups of all ranges together.

        Args:
            tables: tables of the plan.
            near: near-duplicates, of positions in ``near_members``.
            near_members: MEMBER_COLUMNS and perceptual_hash, sorted by row.
            seed: seed of the plan.
        """
        members = pa.concat_tables([tables.read(GROUPS, at) for at in range(tables.ranges)])
        order = np.lexsort((members["row"].to_numpy(), members["opened_by"].to_numpy()))
        members = members.take(pa.array(order)).combine_chunks()
        hashless = members.select(MEMBER_COLUMNS).append_column(
            "perceptual_hash", pa.nulls(members.num_rows, pa.uint64())
        )
        both = pa.concat_tables([near_members.select(hashless.column_names), hashless])
        _, first = np.unique(both["row"].to_numpy(), return_index=True)
        table = both.take(pa.array(first)).combine_chunks()
        rows = table["row"].to_numpy()
        _, opens, codes = np.unique(members["opened_by"].to_numpy(), return_index=True, return_inverse=True)
        keyed = Groups.of(np.searchsorted(rows, members["row"].to_numpy()), codes.reshape(-1))
        keys = one_chunk(members["key"]).take(pa.array(opens))
        if near is not None:
            near = _moved(near, np.searchsorted(rows, near_members["row"].to_numpy()))
        ranks = hash_ranks(table["id"].to_numpy(), seed, SPLIT)
        kinds = [keyed, near.groups if near else Groups.none()]
        return cls(table, keyed, keys, near, ranks, units_of(len(rows), kinds))

    def known_splits(self, num_splits: int) -> Codes:
        """Return the splits that need no choice: int8 [N], -1 if a record's is still open."""
        given, previous = (self.table[name].to_numpy() for name in ("given", "previous"))
        return known_splits(given, previous, self.units, num_splits)

    def ranges_of(self, ranges: int) -> Int64:
        """Return the range of hashes that each record is in: int64 [N]."""
        return range_of(self.ranks, ranges)

    def records(self, splits: Codes) -> GroupedRecords:
        """Return the records with their splits, as ``settle_leaks`` takes them."""
        near = self.near.groups if self.near else Groups.none()
        rows = np.arange(len(splits), dtype=np.int32)
        return GroupedRecords(near, self.keyed, self.keys, splits, self.table["uri"], rows)


def _moved(near: NearDuplicates, places: Int64) -> NearDuplicates:
    """Return near-duplicates of other positions, which rise with the old ones."""
    old = near.groups
    groups = Groups(places[old.records], old.groups, old.count, old.labels, old.order)
    return NearDuplicates(groups, near.distance)


@dataclass(frozen=True)
class KnownSplits:
    """The number of records of each class by the splits that are known, in each range of hashes.

    Attributes:
        classes: names; one empty name if the records have no class.
        counts: int64 [ranges, classes, 1 + splits, 1 + splits], by the split given and by that in the
            previous version, each plus one; 0 if there is none.
    """

    classes: Sequence[str]
    counts: Int64

    def codes(self, labels: pa.ChunkedArray | pa.Array) -> Labels:
        """Return the number of each label: int32 [N]."""
        return codes_of(labels, self.classes)


def codes_of(labels: pa.ChunkedArray | pa.Array, classes: Sequence[str]) -> Labels:
    """Return the number of each label: int32 [N]; 0 if records have no class."""
    if list(classes) == [""]:
        return np.zeros(len(labels), np.int32)
    codes = pc.fill_null(pc.index_in(labels, pa.array(classes, pa.string())), -1)
    return np.asarray(codes.to_numpy(), np.int32)


@dataclass(frozen=True)
class Seats:
    """The split of each record, by the place of the record in its class in the order of the hash.

    Attributes:
        classes: names by which splits are divided.
        labels: the classes of the version, without those that only dropped records have.
        ends: int64 [classes, splits], the place at which the seats of each split end.
        first: int64 [ranges, classes], the place of the first open record of each range.
        row_starts: int64 [ranges], first row of the listing in each range of files.
    """

    classes: Sequence[str]
    labels: Sequence[str]
    ends: Int64
    first: Int64
    row_starts: Int64

    def split_codes(self, labels: pa.ChunkedArray) -> Labels:
        """Return the number of each record's class among ``classes``: int32 [N]."""
        return codes_of(labels, self.classes)

    def label_codes(self, labels: pa.ChunkedArray) -> Labels:
        """Return the number of each record's class among ``labels``: int32 [N]."""
        return codes_of(labels, self.labels)

    def range_of_rows(self, rows: Int64) -> Int64:
        """Return the range of files that holds each row of the listing: int64 [N]."""
        return np.searchsorted(self.row_starts, rows, side="right") - 1

    def fill(self, number: int, splits: Codes, codes: Labels, ranks: UInt64) -> None:
        """Fill in the splits of the records of a range that have none."""
        free = np.flatnonzero(splits < 0)
        ordered = free[np.lexsort((ranks[free], codes[free]))]
        of_class = codes[ordered]
        place = np.arange(len(ordered)) - np.searchsorted(of_class, of_class)
        place += self.first[number][of_class]
        splits[ordered] = (place[:, np.newaxis] >= self.ends[of_class]).sum(axis=1)


def divide(
    known: KnownSplits, grouped: GroupedInRanges, fractions: Sequence[float]
) -> tuple[Codes, Int64, Int64]:
    """Divide the records among the splits as ``assign_splits`` (shardmill.beam_jobs.plan.splits) does.

    Args:
        known: counts of all records.
        grouped: the records that are in groups.
        fractions: share (0 to 1) of each split, summing to 1.

    Returns:
        The splits of the records in groups (int8), the ends of the seats (int64 [classes, splits]), and the
        place of the first open record of each range (int64 [ranges, classes]).
    """
    ranges, classes = known.counts.shape[:2]
    splits, count = len(fractions), known.counts.sum(axis=0)
    own = count[:, 0]  # the source gives no split
    wanted = own.sum(axis=1)[:, np.newaxis] * np.asarray(fractions)
    held = own[:, 1 : splits + 1].copy()
    codes = known.codes(grouped.table["label"])
    given, previous = (grouped.table[name].to_numpy() for name in ("given", "previous"))
    before = np.where(given >= 0, given, previous)
    is_open = (given < 0) & (before < 0)
    found = grouped.known_splits(splits)
    _add(held, codes, found, is_open & (found >= 0))
    placed = found >= 0
    if grouped.units is not None:
        place_units(found, grouped.units, codes, grouped.ranks, wanted - held)
    _add(held, codes, found, is_open & ~placed)
    free = known.counts[:, :, 0, 0].copy()
    np.subtract.at(free, (grouped.ranges_of(ranges)[is_open], codes[is_open]), 1)
    of_class = free.sum(axis=0)
    seats = np.zeros((classes, splits), np.int64)
    if of_class.any():
        seats = round_shares(fill_shortfalls(wanted - held, of_class), of_class, held[:, TRAIN] > 0)
    return found, np.cumsum(seats, axis=1), np.cumsum(free, axis=0) - free


def _add(held: Int64, codes: Labels, splits: Codes, chosen: npt.NDArray[np.bool_]) -> None:
    np.add.at(held, (codes[chosen], splits[chosen]), 1)
