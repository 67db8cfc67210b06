"""The split of each record, by the first of these rules that applies.

1. *Given*: the source says so.
2. *Previous*: the record keeps the split that it has in the previous version.
3. *Group*: a record whose unit (records connected by groups) has members with a split goes where most of them
   are. Units without a split are then placed as a whole, the largest first, each into the split that lacks
   most of the unit's classes.
4. *Stratified*: the other records of each class, in the order of a hash, fill what the splits still lack.

The fractions apply to the records whose split is not given. Without a previous version and without
groups, each class is cut exactly at the fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.plan.columns import Codes
from shardmill.beam_jobs.tables.ids import UInt64

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int32]
Units = npt.NDArray[np.int32]  # the first record of each record's unit

TRAIN = 0


def assign_splits(
    given: Codes,
    labels: Labels,
    ranks: UInt64,
    fractions: Sequence[float],
    previous: Codes | None = None,
    units: Units | None = None,
) -> Codes:
    """Assign each record to a split.

    Args:
        given: int8 [N], the split that the source gives, or -1.
        labels: int32 [N], class of each record.
        ranks: uint64 [N], a hash of each record: within a class, the lowest go to the first split.
        fractions: share (0 to 1) of each split, summing to 1.
        previous: int8 [N], the split that the previous version gave it, or -1.
        units: int32 [N], the first record of each record's unit; None if each record is a unit of its own.

    Returns:
        int8 [N], index into SPLITS.
    """
    splits = known_splits(given, previous, units, len(fractions))
    own = given < 0
    num_classes = int(labels.max()) + 1 if len(labels) else 0
    wanted = np.bincount(labels[own], minlength=num_classes)[:, np.newaxis] * np.asarray(fractions)
    if units is not None:
        shortfall = wanted - _held(splits, own, labels, num_classes, len(fractions))
        place_units(splits, units, labels, ranks, shortfall)
    held = _held(splits, own, labels, num_classes, len(fractions))
    _fill(splits, labels, ranks, wanted - held, trained=held[:, TRAIN] > 0)
    return splits


def known_splits(given: Codes, previous: Codes | None, units: Units | None, num_splits: int) -> Codes:
    """Return the splits that need no choice: int8 [N], -1 if a record's is still open.

    The split that the source gives comes first, then that of the previous version, then that of the unit.
    The arguments are those of ``assign_splits``.
    """
    splits = given.copy()
    if previous is not None:
        splits = np.where(splits >= 0, splits, previous).astype(np.int8)
    if units is not None:
        _follow_units(splits, units, num_splits)
    return splits


def _held(
    splits: Codes, own: npt.NDArray[np.bool_], labels: Labels, num_classes: int, num_splits: int
) -> Int64:
    """Count the records of each class in each split, without the given ones: int64 [classes, splits]."""
    placed = own & (splits >= 0)
    cells = labels[placed] * num_splits + splits[placed]
    return np.bincount(cells, minlength=num_classes * num_splits).reshape(num_classes, num_splits)


def _follow_units(splits: Codes, units: Units, num_splits: int) -> None:
    """Put records without a split where most members of their unit are."""
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
    """Assign the records that have no split yet to the splits with a deficit, class by class."""
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
    """Divide the records of each class among the splits that lack some.

    The records are divided so that the remaining shortfalls are equal and no split gets a negative number.

    Args:
        shortfall: float64 [classes, splits], what each split lacks; negative if it has too many. A row
            sums to its count.
        counts: int64 [classes], records to divide.

    Returns:
        float64 [classes, splits], each row summing to its count.
    """
    # max(0, shortfall - level), with the level at which a row sums to its count (water filling).
    falling = -np.sort(-shortfall, axis=1)
    filled = np.arange(1, shortfall.shape[1] + 1)
    levels = (np.cumsum(falling, axis=1) - counts[:, np.newaxis]) / filled
    last = np.maximum((falling > levels + 1e-9).sum(axis=1) - 1, 0)
    level = np.take_along_axis(levels, last[:, np.newaxis], axis=1)
    return np.maximum(0.0, shortfall - level)


def divide_by_fractions(counts: Int64, fractions: Sequence[float]) -> Int64:
    """Divide the records of each class by the fractions, in whole numbers.

    Args:
        counts: int64 [classes].
        fractions: share (0 to 1) of each split, summing to 1.

    Returns:
        int64 [classes, splits], each row summing to the count of its class.
    """
    return round_shares(
        counts[:, np.newaxis] * np.asarray(fractions), counts, np.zeros(len(counts), np.bool_)
    )


def round_shares(shares: Float64, counts: Int64, trained: npt.NDArray[np.bool_]) -> Int64:
    """Round shares to whole numbers.

    Each number is the exact share rounded down or up. The records that rounding down leaves over go to the
    splits that lack most over all classes so far (largest remainder, carried from class to class), so that
    many small classes together also meet the fractions. The first record of a class goes to train if train
    has a share of it: a class that is only tested can never be right.

    Args:
        shares: float64 [classes, splits], each row summing to the count of its class.
        counts: int64 [classes].
        trained: bool [classes], whether train has a record of the class already.

    Returns:
        int64 [classes, splits], each row summing to the count of its class.
    """
    # 0.1 * 30 is 3.0000000000000004: such a share counts as whole.
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


_UNITS_AT_A_TIME = 1 << 16  # units held as Python values at a time


# The content of one unit: (class, number of its records of that class), sorted by class.
Content = list[tuple[int, int]]


def place_units(
    splits: npt.NDArray[np.int8],
    units: Units,
    labels: Labels,
    ranks: UInt64,
    shortfall: npt.NDArray[np.float64],
    records: npt.NDArray[np.int32] | None = None,
) -> None:
    """Give one split to each unit of several records that has none yet.

    A unit goes into the split where it makes the sum of squared shortfalls over its classes smallest. No
    split exceeds its share of a class by more than one unit: while records are left, some split still lacks
    some.

    Args:
        splits: int8 [N], -1 if there is none yet; filled in.
        units: int32 [N], the first record of each record's unit.
        labels: int32 [P], number of a class; P is N unless ``records`` is given.
        ranks: uint64 [N], a hash of each record; among units of one size, the smallest hash goes first.
        shortfall: float64 [classes, splits], how many records each split lacks.
        records: int32 [P], the record that has each of ``labels``; None: record n has label n.
    """
    is_free = splits < 0
    sizes = np.bincount(units[is_free], minlength=len(units)).astype(np.int32)
    is_member = is_free & (sizes[units] > 1)
    pairs = np.flatnonzero(is_member if records is None else is_member[records])
    if not len(pairs):
        return
    members = pairs if records is None else records[pairs]
    least = np.full(len(units), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, units[members], ranks[members])
    of, held = units[members], labels[pairs]
    order = np.lexsort((held, least[of], -sizes[of]))
    members, held = members[order], held[order]
    of = units[members]

    lacking: list[list[float]] = shortfall.tolist()
    in_all: list[float] = shortfall.sum(axis=0).tolist()
    starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
    chosen = np.empty(len(starts), np.int8)
    for number, content in enumerate(_contents(of, held)):
        chosen[number] = _place(content, lacking, in_all)
    splits[members] = np.repeat(chosen, np.diff(np.append(starts, len(of))))


def _contents(of: Units, labels: Labels) -> Iterator[Content]:
    """Yield the content of each unit. The records are sorted by unit and then by class."""
    opens = np.concatenate([[True], (of[1:] != of[:-1]) | (labels[1:] != labels[:-1])])
    cells = np.flatnonzero(opens)
    counts = np.diff(np.append(cells, len(of)))
    content: Content = []
    unit = -1
    for start in range(0, len(cells), _UNITS_AT_A_TIME):
        part = slice(start, start + _UNITS_AT_A_TIME)
        columns = (of[cells[part]], labels[cells[part]], counts[part])
        for found, label, count in zip(*(column.tolist() for column in columns), strict=True):
            if found != unit and content:
                yield content
                content = []
            unit = found
            content.append((label, count))
    if content:
        yield content


def _place(content: Content, lacking: list[list[float]], in_all: list[float]) -> int:
    """Choose the split of a unit, and subtract the unit from the deficit of that split."""

    def need(split: int) -> tuple[float, float]:
        # (x - n)² - x² is n² - 2nx: smallest where the sum of n * x over the classes is largest.
        gain = sum(count * lacking[label][split] for label, count in content)
        return round(gain, 6), round(in_all[split], 6)

    split = max(range(len(in_all)), key=need)
    for label, count in content:
        lacking[label][split] -= count
        in_all[split] -= count
    return split
