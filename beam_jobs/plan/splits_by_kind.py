"""Divide records evenly over splits and shards, by the kind of their labels.

=========  ======================================  ===============================================
kind       splits                                  shards
=========  ======================================  ===============================================
class      each class by the fractions             records of each class in turn
multi      iterative stratification by label       records of each set of labels in turn
targets    iterative stratification by the tenths  records of each combination of tenths in turn
mask       as multi, by the classes that it shows  as multi
none       all records by the fractions            records in turn
=========  ======================================  ===============================================
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import Codes, Rows
from shardmill.beam_jobs.plan.splits import Labels, Units, assign_splits, known_splits, place_units
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.beam_jobs.tables.ids import UInt64
from shardmill.infra.format.known_features import LABELS, TARGETS, LabelKind

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

NUM_BINS = 10  # the values of each target are cut into tenths


@dataclass(frozen=True)
class Strata:
    """The strata of each record, as pairs that are sorted by record and then by stratum.

    Attributes:
        records: int32 [P], the record of each pair.
        strata: int32 [P], its stratum.
        count: number of strata.
        decide_together: all strata of a record choose its split, not the rarest alone.
    """

    records: Int32
    strata: Int32
    count: int
    decide_together: bool = False

    @classmethod
    def of_labels(cls, lengths: Int64, labels: Int64, num_classes: int) -> Self:
        """Return the strata of records with any number of labels.

        Args:
            lengths: int64 [N], number of labels of each record.
            labels: int64 [sum of lengths], numbers of the classes, rising within a record.
            num_classes: stratum ``num_classes`` holds the records without a label.
        """
        counts = np.maximum(lengths, 1)
        strata = np.full(int(counts.sum()), num_classes, np.int32)
        strata[np.repeat(lengths > 0, counts)] = labels
        return cls(np.repeat(np.arange(len(lengths), dtype=np.int32), counts), strata, num_classes + 1)

    @classmethod
    def of_targets(cls, targets: npt.NDArray[np.float32]) -> Self:
        """Return the strata of records with numbers: a bin for each of them.

        Args:
            targets: float32 [N, T].
        """
        bins = quantile_bins(targets)
        count, width = bins.shape
        strata = bins + NUM_BINS * np.arange(width, dtype=np.int32)
        records = np.repeat(np.arange(count, dtype=np.int32), width)
        return cls(records, strata.reshape(-1).astype(np.int32), NUM_BINS * width, decide_together=True)


def quantile_bins(targets: npt.NDArray[np.float32]) -> Int32:
    """Return the bin of each value among the tenths of its column: int32 [N, T]. Equal values share a bin."""
    bins = np.zeros(targets.shape, np.int32)
    for column in range(targets.shape[1] if len(targets) else 0):
        values = targets[:, column].astype(np.float64)
        edges = np.quantile(values, np.arange(1, NUM_BINS) / NUM_BINS)
        bins[:, column] = np.searchsorted(edges, values, side="right")
    return bins


def assign_by_strata(
    given: Codes,
    strata: Strata,
    ranks: UInt64,
    fractions: Sequence[float],
    previous: Codes | None = None,
    units: Units | None = None,
) -> Codes:
    """Assign each record to a split, as ``splits.assign_splits`` does for classes.

    Args:
        given: int8 [N], the split that the source gives, or -1.
        strata: sets of labels of the N records.
        ranks: uint64 [N], a hash of each record: the lowest are placed first.
        fractions: share (0 to 1) of each split, summing to 1.
        previous: int8 [N], the split that the previous version gave it, or -1.
        units: int32 [N], the first record of each record's unit; None if each record is a unit of its own.

    Returns:
        int8 [N], index into SPLITS.
    """
    splits = known_splits(given, previous, units, len(fractions))
    own = given < 0
    of_pair = own[strata.records]
    wanted = np.bincount(strata.strata[of_pair], minlength=strata.count)[:, np.newaxis] * np.asarray(
        fractions
    )
    if units is not None:
        shortfall = wanted - _held(splits, own, strata, len(fractions))
        place_units(splits, units, strata.strata, ranks, shortfall, strata.records)
    shortfall = wanted - _held(splits, own, strata, len(fractions))
    placed = splits[own & (splits >= 0)]
    records = own.sum() * np.asarray(fractions) - np.bincount(placed, minlength=len(fractions))
    _fill(splits, strata, ranks, _Lacking(shortfall.tolist(), records.tolist(), tuple(fractions)))
    return splits


def _held(splits: Codes, own: npt.NDArray[np.bool_], strata: Strata, num_splits: int) -> Int64:
    """Count the records of each stratum in each split, without the given ones: int64 [strata, splits]."""
    of_pair = splits[strata.records]
    placed = own[strata.records] & (of_pair >= 0)
    cells = strata.strata[placed].astype(np.int64) * num_splits + of_pair[placed]
    return np.bincount(cells, minlength=strata.count * num_splits).reshape(strata.count, num_splits)


@dataclass(frozen=True)
class _Lacking:
    """The records and labels that the splits still lack, while records are placed.

    Attributes:
        strata: [strata][splits], records of each stratum.
        in_all: [splits], records.
        fractions: [splits].
    """

    strata: list[list[float]]
    in_all: list[float]
    fractions: tuple[float, ...]

    def choose(self, strata: Sequence[int], *, in_proportion: bool) -> int:
        """Return the split that lacks most of some strata together, then most records."""

        def need(split: int) -> tuple[float, float]:
            lacks = sum(self.strata[stratum][split] for stratum in strata)
            scale = self.fractions[split] if in_proportion and self.fractions[split] else 1.0
            return round(lacks / scale, 6), round(self.in_all[split] / scale, 6)

        return max(range(len(self.in_all)), key=need)

    def place(self, strata: Sequence[int], split: int) -> None:
        """Subtract a record with some strata from what a split lacks."""
        self.in_all[split] -= 1
        for stratum in strata:
            self.strata[stratum][split] -= 1


def _fill(splits: Codes, strata: Strata, ranks: UInt64, lacking: _Lacking) -> None:
    """Place the records that have no split yet, the rarest stratum first.

    Args:
        splits: int8 [N], -1 if there is none yet; filled in.
        strata: sets of labels of the N records.
        ranks: uint64 [N], a hash of each record.
        lacking: what the splits lack.
    """
    free = np.flatnonzero(splits[strata.records] < 0)
    if not len(free):
        return
    members, numbers = strata.records[free], strata.strata[free]
    of_record = np.searchsorted(members, np.arange(len(splits) + 1))
    by_stratum = np.lexsort((ranks[members], numbers))
    of_stratum = np.searchsorted(numbers[by_stratum], np.arange(strata.count + 1))
    left: list[int] = np.diff(of_stratum).tolist()
    rarest = [(count, stratum) for stratum, count in enumerate(left) if count]
    heapq.heapify(rarest)
    while rarest:
        count, stratum = heapq.heappop(rarest)
        if count != left[stratum]:  # records of it were placed with other labels meanwhile
            if left[stratum]:
                heapq.heappush(rarest, (left[stratum], stratum))
            continue
        for record in members[by_stratum[of_stratum[stratum] : of_stratum[stratum + 1]]].tolist():
            if splits[record] >= 0:
                continue
            own = numbers[of_record[record] : of_record[record + 1]].tolist()
            deciding = own if strata.decide_together else [stratum]
            split = lacking.choose(deciding, in_proportion=strata.decide_together)
            splits[record] = split
            lacking.place(own, split)
            for other in own:
                left[other] -= 1


@dataclass(frozen=True)
class LabelsToSplit:
    """The labels of records, of any kind.

    Attributes:
        classes: int32 [N], number of the class, if the kind is class.
        table: has the columns of labels or targets.
        rows: int32 [N], row of each record in the table.
        num_classes: number of the classes.
    """

    classes: Labels
    table: pa.Table
    rows: Rows
    num_classes: int


def assign_by_kind(
    kind: LabelKind,
    labels: LabelsToSplit,
    given: Codes,
    ranks: UInt64,
    fractions: Sequence[float],
    previous: Codes | None = None,
    units: Units | None = None,
) -> Codes:
    """Assign each record to a split: int8 [N], index into SPLITS. See ``assignment.assign_splits``."""
    if kind == "class":
        return assign_splits(given, labels.classes, ranks, fractions, previous, units)
    if kind == "none":
        return assign_splits(given, np.zeros_like(labels.classes), ranks, fractions, previous, units)
    if kind in ("multi", "mask"):
        lists = one_chunk(labels.table[PREFIX + LABELS].take(pa.array(labels.rows)))
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        strata = Strata.of_labels(lengths, lists.flatten().to_numpy(), labels.num_classes)
    else:
        strata = Strata.of_targets(_targets_of(labels.table, labels.rows))
    return assign_by_strata(given, strata, ranks, fractions, previous, units)


def dealing_strata(kind: LabelKind, table: pa.Table, rows: Rows, classes: Labels) -> npt.NDArray[np.int32]:
    """Return the stratum of each record by which records are dealt to shards: int32 [N].

    Args:
        kind: kind of the labels.
        table: has the columns of labels or targets.
        rows: int32 [N], row of each record in the table.
        classes: int32 [N], number of the class, if the kind is class.
    """
    if kind in ("multi", "mask"):
        lists = one_chunk(table[PREFIX + LABELS].take(pa.array(rows)))
        # As text a list can be coded; the codes are in the order of the texts, whatever that of the rows.
        texts = pc.binary_join(lists.cast(pa.list_(pa.string())), " ")
        ordered = pc.unique(texts).sort()
        return np.asarray(pc.fill_null(pc.index_in(texts, ordered), -1).to_numpy(), np.int32)
    if kind == "targets":
        bins = quantile_bins(_targets_of(table, rows))
        _, strata = np.unique(bins, axis=0, return_inverse=True)
        return strata.reshape(-1).astype(np.int32)
    return classes


def _targets_of(table: pa.Table, rows: Rows) -> npt.NDArray[np.float32]:
    """Return the targets of records: float32 [N, T]."""
    lists = one_chunk(table[PREFIX + TARGETS].take(pa.array(rows)))
    values: npt.NDArray[np.float32] = lists.flatten().to_numpy()
    return values.reshape(len(rows), -1) if len(rows) else np.zeros((0, 1), np.float32)
