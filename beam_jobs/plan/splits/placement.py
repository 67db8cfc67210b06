"""Placement of units of several records: the largest first, each into the split that lacks most."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.tables.ids import UInt64

Int64 = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int32]
Units = npt.NDArray[np.int32]  # the first record of each record's unit

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
