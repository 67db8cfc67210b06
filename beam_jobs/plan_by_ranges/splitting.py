"""Splits by ranges: the number of places of each class in each split, divided among the ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import Codes
from shardmill.beam_jobs.plan.splits.assignment import TRAIN, fill_shortfalls, round_shares
from shardmill.beam_jobs.plan.splits.placement import Labels, place_units
from shardmill.beam_jobs.plan_by_ranges.grouping import GroupedInRanges
from shardmill.beam_jobs.plan_by_ranges.tables import Int64
from shardmill.beam_jobs.tables.ids import UInt64


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
