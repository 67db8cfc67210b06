"""Which record goes to which split: given, then earlier, then with its group, then by class and hash.

1. *Given* by the source.
2. *Earlier*: the split that the version before gave the record.
3. *Group*: a record that hangs together with records of 1 and 2 goes where most of them are. Of those that
   are left, what hangs together goes to one split: the largest unit first, each to the split that falls short
   most of the unit's classes.
4. *Stratified*: of each class the rest, in the order of a hash, fills what the splits fall short of.

The fractions are those of the records whose split is not given. Where nothing was there before and nothing
hangs together, each class is cut at them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from beam_jobs.plan.hashing import UInt64
from beam_jobs.plan.placing import Labels, Units, place_units

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]  # index into SPLITS; -1 where there is none

TRAIN = 0


def assign_splits(
    given: Codes,
    labels: Labels,
    ranks: UInt64,
    fractions: Sequence[float],
    earlier: Codes | None = None,
    units: Units | None = None,
) -> Codes:
    """The split of each record.

    Args:
        given: int8 [N], the split that the source gives, or -1.
        labels: int32 [N], class of each record.
        ranks: uint64 [N], a hash of each record: within a class, the lowest go to the first split.
        fractions: of each split, summing to 1.
        earlier: int8 [N], the split that the earlier version gave it, or -1.
        units: int32 [N], the first record of those that it hangs together with.

    Returns:
        int8 [N].
    """
    splits = given.copy()
    if earlier is not None:
        splits = np.where(splits >= 0, splits, earlier).astype(np.int8)
    if units is not None:
        _follow_units(splits, units, len(fractions))
    own = given < 0
    num_classes = int(labels.max()) + 1 if len(labels) else 0
    wanted = np.bincount(labels[own], minlength=num_classes)[:, np.newaxis] * np.asarray(fractions)
    if units is not None:
        shortfall = wanted - _held(splits, own, labels, num_classes, len(fractions))
        place_units(splits, units, labels, ranks, shortfall)
    held = _held(splits, own, labels, num_classes, len(fractions))
    _fill(splits, labels, ranks, wanted - held, trained=held[:, TRAIN] > 0)
    return splits


def _held(
    splits: Codes, own: npt.NDArray[np.bool_], labels: Labels, num_classes: int, num_splits: int
) -> Int64:
    """How many records of each class each split has, given ones apart: int64 [classes, splits]."""
    placed = own & (splits >= 0)
    cells = labels[placed] * num_splits + splits[placed]
    return np.bincount(cells, minlength=num_classes * num_splits).reshape(num_classes, num_splits)


def _follow_units(splits: Codes, units: Units, num_splits: int) -> None:
    """Records without a split go where most of those are that they hang together with."""
    placed = np.flatnonzero(splits >= 0)
    if not len(placed):
        return
    counts = np.zeros((len(units), num_splits), np.int32)
    np.add.at(counts, (units[placed], splits[placed]), 1)
    free = np.flatnonzero(splits < 0)
    of_unit = counts[units[free]]
    drawn = of_unit.any(axis=1)
    splits[free[drawn]] = of_unit[drawn].argmax(axis=1)


def _fill(
    splits: Codes, labels: Labels, ranks: UInt64, shortfall: Float64, trained: npt.NDArray[np.bool_]
) -> None:
    """Fill what the splits fall short of with the records that have none yet, class by class."""
    free = np.flatnonzero(splits < 0)
    if not len(free):
        return
    ordered = free[np.lexsort((ranks[free], labels[free]))]
    counts = np.bincount(labels[free], minlength=len(shortfall))
    seats = round_shares(fill_shortfalls(shortfall, counts), counts, trained)
    # Class after class, and in each its seats of train, validation, test: just the order of `ordered`.
    splits[ordered] = np.repeat(
        np.tile(np.arange(seats.shape[1], dtype=np.int8), len(seats)), seats.reshape(-1)
    )


def fill_shortfalls(shortfall: Float64, counts: Int64) -> Float64:
    """Shares of so many records that leave the splits equally short, and take from none.

    Args:
        shortfall: float64 [classes, splits], what each split lacks; negative where it has too many. A row
            sums to its count.
        counts: int64 [classes].

    Returns:
        float64 [classes, splits], each row summing to its count.
    """
    # max(0, shortfall - level), with the level at which a row sums to its count (as water finds its level).
    falling = -np.sort(-shortfall, axis=1)
    filled = np.arange(1, shortfall.shape[1] + 1)
    levels = (np.cumsum(falling, axis=1) - counts[:, np.newaxis]) / filled
    last = np.maximum((falling > levels + 1e-9).sum(axis=1) - 1, 0)
    level = np.take_along_axis(levels, last[:, np.newaxis], axis=1)
    return np.maximum(0.0, shortfall - level)


def apportion(counts: Int64, fractions: Sequence[float]) -> Int64:
    """How many records of each class go to each split where nothing was there before.

    Args:
        counts: int64 [classes].
        fractions: of each split, summing to 1.

    Returns:
        int64 [classes, splits], each row summing to the count of its class.
    """
    return round_shares(
        counts[:, np.newaxis] * np.asarray(fractions), counts, np.zeros(len(counts), np.bool_)
    )


def round_shares(shares: Float64, counts: Int64, trained: npt.NDArray[np.bool_]) -> Int64:
    """Shares as whole numbers.

    Each number is the exact share rounded down or up. A class whose shares do not come out even has seats
    left; they go where the classes so far, together, fall short most (largest remainder, carried from class
    to class), so that many small classes also come out at the fractions. The first record of a class goes to
    train, where train gets any: a class that is only tested can never be right.

    Args:
        shares: float64 [classes, splits], each row summing to the count of its class.
        counts: int64 [classes].
        trained: bool [classes], those that train has a record of already.

    Returns:
        int64 [classes, splits], each row summing to the count of its class.
    """
    # 0.1 * 30 is 3.0000000000000004: a share that is whole but for rounding is whole.
    whole = np.rint(shares)
    shares = np.where(np.abs(shares - whole) < 1e-6, whole, shares)
    seats = np.floor(shares).astype(np.int64)
    short = np.zeros(shares.shape[1])
    for at in np.flatnonzero(seats.sum(axis=1) < counts):
        fraction = shares[at] - seats[at]
        short += fraction
        open_to = set(np.flatnonzero(fraction > 0).tolist())
        for _ in range(int(counts[at] - seats[at].sum())):
            if not trained[at] and seats[at][TRAIN] == 0 and TRAIN in open_to:
                split = TRAIN
            else:
                split = max(sorted(open_to), key=lambda candidate: round(float(short[candidate]), 9))
            open_to.discard(split)
            seats[at][split] += 1
            short[split] -= 1
    return seats
