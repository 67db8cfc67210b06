"""Units of several records, placed one by one: the largest first, where most is lacking."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from beam_jobs.plan.hashing import UInt64

Int64 = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int32]
Units = npt.NDArray[np.int32]  # the first record of each record's unit

_UNITS_AT_A_TIME = 1 << 16  # as Python values

# Of one unit: a class, and how many of its records are of it; the commonest first.
Content = list[tuple[int, int]]


def place_units(
    splits: npt.NDArray[np.int8],
    units: Units,
    labels: Labels,
    ranks: UInt64,
    shortfall: npt.NDArray[np.float64],
) -> None:
    """Give each unit of several records that has no split yet one split.

    A unit goes where the sum of squares of what is lacking, over its classes, becomes smallest. Of the
    records of one class no split gets more than it should by the size of the largest unit: as long as records
    are left some split lacks some, and that one is taken.

    Args:
        splits: int8 [N], -1 where there is none yet; filled in.
        units: int32 [N].
        labels: int32 [N].
        ranks: uint64 [N], a hash of each record; the least of a unit decides among units of one size.
        shortfall: float64 [classes, splits], how many records each split lacks.
    """
    is_free = splits < 0
    sizes = np.bincount(units[is_free], minlength=len(units)).astype(np.int32)
    members = np.flatnonzero(is_free & (sizes[units] > 1))
    if not len(members):
        return
    least = np.full(len(units), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, units[members], ranks[members])
    of = units[members]
    members = members[np.lexsort((labels[members], least[of], -sizes[of]))]
    of = units[members]

    lacking: list[list[float]] = shortfall.tolist()
    in_all: list[float] = shortfall.sum(axis=0).tolist()
    starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
    chosen = np.empty(len(starts), np.int8)
    for number, content in enumerate(_contents(of, labels[members])):
        chosen[number] = _place(content, lacking, in_all)
    splits[members] = np.repeat(chosen, np.diff(np.append(starts, len(of))))


def _contents(of: Units, labels: Labels) -> Iterator[Content]:
    """What is in each unit; members of a unit stand together, and in it those of a class."""
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
    """The split of a unit; what it brings is taken from what is lacking."""

    def need(split: int) -> tuple[float, float]:
        # (x - n)² - x² is n² - 2nx: smallest where the sum of n * x over the classes is largest.
        gain = sum(count * lacking[label][split] for label, count in content)
        return round(gain, 6), round(in_all[split], 6)

    split = max(range(len(in_all)), key=need)
    for label, count in content:
        lacking[label][split] -= count
        in_all[split] -= count
    return split
