"""Stratification of records that have several labels, or numbers, instead of one class.

A record belongs to *strata*: its labels (none is a stratum too), or the quantile bin of each of its targets.
Units of several records are placed as they are for classes (``placement``). The other records are divided by
iterative stratification: the records of the stratum with the fewest records left are placed first, each into
the split that lacks most of this stratum, then most records at all. (K. Sechidis, G. Tsoumakas, I. Vlahavas:
On the Stratification of Multi-Label Data, ECML PKDD 2011, algorithm 1.)

Where each record has a bin of each of several targets, no stratum is rarer than another, and the first target
alone would decide. There a record goes to the split that lacks most of all its strata together, in relation
to the fraction of the split.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.plan.columns import Codes
from shardmill.beam_jobs.plan.splits.assignment import known_splits
from shardmill.beam_jobs.plan.splits.placement import Units, place_units
from shardmill.beam_jobs.tables.ids import UInt64

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
    """Assign each record to a split, as ``assignment.assign_splits`` does for classes.

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
