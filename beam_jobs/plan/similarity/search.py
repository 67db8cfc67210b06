"""Search for pairs of 64-bit hashes that may be near each other: one of a set, the other of another set.

The 64 bits are cut into five bands. Two hashes become a candidate pair if they agree in two of the bands. All
pairs that differ in at most three bits are among them, and most pairs that differ in four or five. For each
choice of two bands the hashes of both sets are sorted together, so that hashes that agree are neighbours
(multi-index hashing: Norouzi, Punjani and Fleet, "Fast search in Hamming space with multi-index hashing",
2012). Each hash is compared with so many successors at most, which bounds the work where very many agree.

The hashes are searched in parts by their first chosen band: hashes of different parts do not agree in it. So
parts may be searched at a time, and the pairs come in the same batches whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, combinations, pairwise

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.tables.ids import UInt64

HASH_BITS = 64
MAX_SUCCESSORS = 256
HASHES_AT_A_TIME = 1 << 24  # about 1 GB while they are sorted

_BANDS, _AGREEING = 5, 2
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 ÷ golden ratio: spreads keys over slots

Int64 = npt.NDArray[np.int64]
UInt16 = npt.NDArray[np.uint16]
Pairs = tuple[Int64, Int64]  # positions of hashes in one set, and of their partners in the other


def choices() -> list[tuple[int, ...]]:
    """Return the choices of bands in which a candidate pair may agree."""
    return list(combinations(range(_BANDS), _AGREEING))


def candidates(
    one: UInt64,
    other: UInt64,
    chosen: tuple[int, ...],
    max_distance: int,
    at_a_time: int = 1,
    each: Callable[..., Iterator[Pairs | None]] = map,
) -> Iterator[Pairs]:
    """Yield pairs that agree in the chosen bands, in batches: positions in the flattened arrays.

    Args:
        one: uint64 [R, A].
        other: uint64 [S, B].
        chosen: numbers of two bands.
        max_distance: bits in which a pair may differ.
        at_a_time: how many parts are searched at a time.
        each: ``map``, or one that makes so many calls at a time.
    """
    moves, key_bits = _layout(chosen)
    low, _, width = moves[0]
    band = np.uint64((1 << width) - 1)
    sets = [(rows, (rows >> np.uint64(low) & band).astype(np.uint16)) for rows in (one, other)]
    outer = min(1 << width, -(-(one.size + other.size) // HASHES_AT_A_TIME))
    parts = min(1 << width, outer * at_a_time)
    for first in range(0, parts, at_a_time):
        bounds = [
            [(number << width) // parts for number in (part, part + 1)]
            for part in range(first, min(first + at_a_time, parts))
        ]
        searches = [_pairs(sets, bound, moves, key_bits, max_distance) for bound in bounds]
        while searches:
            found = list(each(_next_pairs, searches))
            searches = [search for search, pairs in zip(searches, found, strict=True) if pairs is not None]
            some = [pairs for pairs in found if pairs is not None and len(pairs[0])]
            if some:
                yield np.concatenate([at for at, _ in some]), np.concatenate([to for _, to in some])


def _next_pairs(search: Iterator[Pairs]) -> Pairs | None:
    return next(search, None)


def _in_band(rows: UInt64, bands: UInt16, bounds: list[int]) -> tuple[UInt64, Int64]:
    """Return the hashes with a band of [start, stop), and their positions: uint64 [K], int64 [K]."""
    start, stop = bounds
    hashes, positions = [], []
    for number, (row, band) in enumerate(zip(rows, bands, strict=True)):
        found = np.flatnonzero((band >= start) & (band < stop))
        hashes.append(row[found])
        positions.append(found + number * len(row))
    return np.concatenate(hashes), np.concatenate(positions)


def _pairs(
    sets: list[tuple[UInt64, UInt16]],
    bounds: list[int],
    moves: list[tuple[int, int, int]],
    key_bits: int,
    max_distance: int,
) -> Iterator[Pairs]:
    """Yield the pairs of hashes of a part that agree in their first ``key_bits`` once moved.

    Yields the pairs of neighbours, then of next but one neighbours and so on; see ``candidates``.
    """
    both = [_in_band(rows, bands, bounds) for rows, bands in sets]
    kept = _with_partners([_moved(values, moves[:_AGREEING]) for values, _ in both])
    values = np.concatenate([_moved(part[at], moves) for (part, _), at in zip(both, kept, strict=True)])
    entries = np.concatenate([both[0][1][kept[0]], ~both[1][1][kept[1]]])
    del both, kept
    order = np.argsort(values, kind="stable")
    values, entries = values[order], entries[order]
    limit = np.uint64(1 << (HASH_BITS - key_bits))
    at = np.arange(len(values) - 1)
    for lag in range(1, MAX_SUCCESSORS + 1):
        at = at[: np.searchsorted(at, len(values) - lag)]
        differing = values[at] ^ values[at + lag]
        agree = differing < limit
        at, differing = at[agree], differing[agree]
        if not len(at):
            return
        near = np.bitwise_count(differing) <= max_distance
        ends = entries[at[near]], entries[at[near] + lag]
        low, high = np.minimum(*ends), np.maximum(*ends)
        crossing = (low < 0) & (high >= 0)
        yield high[crossing], ~low[crossing]


def _with_partners(keys: list[UInt64]) -> list[Int64]:
    """Return the positions of the keys that may be in the other set too; few others are among them."""
    bits = max(8, int(max(map(len, keys)) * 4).bit_length())
    taken = []
    for key in keys:
        key *= _MIX
        key >>= np.uint64(HASH_BITS - bits)
        found = np.zeros(1 << bits, np.bool_)
        found[key] = True
        taken.append(found)
    return [np.flatnonzero(there[key]) for key, there in zip(keys, reversed(taken), strict=True)]


def _layout(chosen: tuple[int, ...]) -> tuple[list[tuple[int, int, int]], int]:
    """Return moves (from, to, width) that bring the chosen bands to the top, and the bits of those bands."""
    edges = [HASH_BITS * at // _BANDS for at in range(_BANDS + 1)]
    bands = [(low, high - low) for low, high in pairwise(edges)]
    ordered = [bands[at] for at in chosen] + [band for at, band in enumerate(bands) if at not in chosen]
    ends = accumulate((width for _, width in ordered), initial=0)
    moves = [(low, HASH_BITS - end - width, width) for (low, width), end in zip(ordered, ends, strict=False)]
    return moves, sum(bands[at][1] for at in chosen)


def _moved(values: UInt64, moves: list[tuple[int, int, int]]) -> UInt64:
    """Return the values with bands of bits moved to other places: uint64 [N]."""
    moved = np.zeros_like(values)
    for low, to, width in moves:
        band = values >> np.uint64(low)
        band &= np.uint64((1 << width) - 1)
        band <<= np.uint64(to)
        moved |= band
    return moved
