"""Exact search for all pairs of 64-bit hashes that differ in few bits.

The 64 bits are cut into d + k bands. Two hashes that differ in at most d bits agree in at least k whole
bands. So for each choice of k bands only the hashes that agree there are compared: sorted by these bands,
they are neighbours (multi-index hashing: Norouzi, Punjani and Fleet, "Fast search in Hamming space with
multi-index hashing", 2012). A larger k means more sortings and fewer comparisons. The search starts with a
small k and takes the next one if too many hashes agree, for example because they have whole bands in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from math import comb

import numpy as np
import numpy.typing as npt

from beam_jobs.plan.similarity.components import Components
from beam_jobs.tables.ids import UInt64

HASH_BITS = 64

_FEW_HASHES = 4096  # up to so many hashes, one band in common is enough
_MOST_TABLES = 100
# Comparisons before more bands are tried: so many a hash, but at least the second number.
_COMPARISONS_A_HASH, _COMPARISONS = 200, 50_000_000

_PAIRS_AT_A_TIME = 1 << 20
_HASHES_AT_A_TIME = 1 << 15  # hashes compared with their successors at a time

Int64 = npt.NDArray[np.int64]
Pairs = tuple[Int64, Int64, npt.NDArray[np.int8]]  # positions of both, and their distance (bits)


@dataclass(frozen=True)
class Neighbourhoods:
    """Hashes that are connected by chains of near pairs.

    Attributes:
        component: int32 [N], the position of the smallest hash that each hash is connected with.
        nearest: int8 [N], bits in which the nearest other hash differs; -1 if no hash is near.
    """

    component: npt.NDArray[np.int32]
    nearest: npt.NDArray[np.int8]


def neighbourhoods(hashes: UInt64, max_distance: int) -> Neighbourhoods:
    """Connect hashes that differ in at most ``max_distance`` bits.

    Args:
        hashes: uint64 [N], rising, without duplicates.
        max_distance: bits, 0 to 62.
    """
    components = Components(len(hashes))
    nearest = np.full(len(hashes), HASH_BITS + 1, np.int8)
    if max_distance and len(hashes) > 1:
        for one, other, distance in _batched(_near_pairs(hashes, max_distance)):
            np.minimum.at(nearest, one, distance)
            np.minimum.at(nearest, other, distance)
            components.connect(one, other)
    nearest[nearest > HASH_BITS] = -1
    return Neighbourhoods(components.root, nearest)


def _batched(pairs: Iterator[Pairs]) -> Iterator[Pairs]:
    """Yield the same pairs in few large arrays, since each call of ``connect`` passes over all nodes."""
    waiting: list[Pairs] = []
    count = 0
    for found in pairs:
        waiting.append(found)
        count += len(found[0])
        if count >= _PAIRS_AT_A_TIME:
            yield _joined(waiting)
            waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Pairs]) -> Pairs:
    one, other, distance = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return one, other, distance


class _TooManyError(Exception):
    """Too many hashes agree in the chosen bands: more bands must be chosen."""


def _near_pairs(hashes: UInt64, max_distance: int) -> Iterator[Pairs]:
    """Yield every near pair at least once."""
    agreeing = 1 if len(hashes) <= _FEW_HASHES else 2
    while True:
        may_grow = (
            max_distance + agreeing < HASH_BITS - 1
            and comb(max_distance + agreeing + 1, agreeing + 1) <= _MOST_TABLES
        )
        budget = max(_COMPARISONS, _COMPARISONS_A_HASH * len(hashes)) if may_grow else None
        try:
            yield from _pairs_of_tables(hashes, max_distance, agreeing, budget)
            return
        except _TooManyError:
            agreeing += 1  # pairs that were found already are found again, which changes nothing


def _pairs_of_tables(hashes: UInt64, max_distance: int, agreeing: int, budget: int | None) -> Iterator[Pairs]:
    bands = _bands(max_distance + agreeing)
    spent = 0
    for chosen in combinations(range(len(bands)), agreeing):
        # The chosen bands first, so that sorting brings together hashes that agree in them.
        layout = [bands[at] for at in chosen]
        key_bits = sum(width for _, width in layout)
        layout += [band for at, band in enumerate(bands) if at not in chosen]
        moves = _moves(layout)
        moves_back = [(to, low, width) for low, to, width in moves]
        moved = _moved(hashes, moves)
        moved.sort()
        if budget is not None:
            spent += _num_comparisons(moved, key_bits)
            if spent > budget:
                raise _TooManyError
        for one, other, distance in _pairs_in_buckets(moved, key_bits, max_distance):
            yield (
                np.searchsorted(hashes, _moved(one, moves_back)),
                np.searchsorted(hashes, _moved(other, moves_back)),
                distance,
            )


def _bands(count: int) -> list[tuple[int, int]]:
    """Cut the bits into so many bands as evenly as possible; returns (lowest bit, width) of each."""
    edges = [HASH_BITS * at // count for at in range(count + 1)]
    return [(low, high - low) for low, high in pairwise(edges)]


def _moves(layout: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return (from, to, width) of moves that bring the bands side by side, the first one at the top."""
    ends = accumulate((width for _, width in layout), initial=0)
    return [(low, HASH_BITS - end - width, width) for (low, width), end in zip(layout, ends, strict=False)]


def _moved(values: UInt64, moves: list[tuple[int, int, int]]) -> UInt64:
    """Return the values with bands of bits moved to other places: uint64 [N]."""
    moved = np.zeros_like(values)
    for low, to, width in moves:
        band = values >> np.uint64(low)
        band &= np.uint64((1 << width) - 1)
        band <<= np.uint64(to)
        moved |= band
    return moved


def _num_comparisons(moved: UInt64, key_bits: int) -> int:
    """Return the number of pairs that agree in the top bits."""
    opens = np.ones(len(moved), np.bool_)
    opens[1:] = moved[1:] ^ moved[:-1] >= np.uint64(1 << (HASH_BITS - key_bits))
    sizes = np.diff(np.flatnonzero(opens), append=len(moved))
    return (int(np.dot(sizes, sizes)) - len(moved)) // 2


def _pairs_in_buckets(
    moved: UInt64, key_bits: int, max_distance: int
) -> Iterator[tuple[UInt64, UInt64, npt.NDArray[np.int8]]]:
    """Yield near pairs among sorted values that agree in the top bits: both values, and their distance."""
    limit = np.uint64(1 << (HASH_BITS - key_bits))
    for start in range(0, len(moved) - 1, _HASHES_AT_A_TIME):
        at = np.arange(start, min(start + _HASHES_AT_A_TIME, len(moved) - 1))
        lag = 1
        while len(at):
            ahead = moved[at + lag]
            differing = moved[at] ^ ahead
            same_bucket = differing < limit
            at, ahead, differing = at[same_bucket], ahead[same_bucket], differing[same_bucket]
            distance = np.bitwise_count(differing)
            near = distance <= max_distance
            if near.any():
                yield moved[at[near]], ahead[near], distance[near].astype(np.int8)
            lag += 1
            at = at[: np.searchsorted(at, len(moved) - lag)]
