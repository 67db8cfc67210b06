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
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.splitmix import U64

HASH_BITS = 64
MAX_SUCCESSORS = 256
HASHES_AT_A_TIME = 1 << 24  # about 1 GB while they are sorted

_BANDS, _AGREEING = 5, 2
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 ÷ golden ratio: spreads keys over slots

Int64 = npt.NDArray[np.int64]
Move = tuple[int, int, int]  # of a band: from, to, width (bits)
Pairs = tuple[Int64, Int64]  # positions of hashes in one set, and of their partners in the other


def choices() -> list[tuple[int, ...]]:
    """Return the choices of bands in which a candidate pair may agree."""
    return list(combinations(range(_BANDS), _AGREEING))


def candidates(
    one: U64,
    other: U64,
    chosen: tuple[int, ...],
    max_distance: int,
    at_a_time: int = 1,
    each: Callable[..., Iterator[Any]] = map,
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
    width = moves[0][-1]
    outer = min(1 << width, -(-(one.size + other.size) // HASHES_AT_A_TIME))
    parts = min(1 << width, outer * at_a_time)
    for first in range(0, parts, at_a_time):
        numbers = range(first, min(first + at_a_time, parts) + 1)
        edges = [(number << width) // parts for number in numbers]
        values, entries = _with_partners((one, other), moves, (edges[0], edges[-1]), each)
        top = (HASH_BITS - width, 0, width)  # of the first band, now that it is moved
        inside = [_in_band(values, top, bounds) for bounds in pairwise(edges)]
        searches = [_pairs(values[here], entries[here], key_bits, max_distance) for here in inside]
        del values, entries, inside
        while searches:
            found = list(each(_next_pairs, searches))
            searches = [search for search, pairs in zip(searches, found, strict=True) if pairs is not None]
            some = [pairs for pairs in found if pairs is not None and len(pairs[0])]
            if some:
                yield np.concatenate([at for at, _ in some]), np.concatenate([to for _, to in some])


def _next_pairs(search: Iterator[Pairs]) -> Pairs | None:
    return next(search, None)


def _with_partners(
    sets: tuple[U64, U64],
    moves: list[Move],
    bounds: tuple[int, int],
    each: Callable[..., Iterator[Any]],
) -> tuple[U64, Int64]:
    """Return the hashes that agree with one of the other set in the chosen bands; few others are among them.

    Args:
        sets: uint64 [R, A] and uint64 [S, B].
        moves: of ``_layout``.
        bounds: start and stop of the first chosen band of these hashes.
        each: ``map``, or one that makes several calls at a time.

    Returns:
        uint64 [K], the hashes with their bands moved, and int64 [K], their positions in the first set, or -1
        less those in the second.
    """
    chosen = np.uint64(sum(((1 << width) - 1) << low for low, _, width in moves[:_AGREEING]))
    most = max(rows.size for rows in sets) * (bounds[1] - bounds[0]) >> moves[0][-1]
    bits = max(8, (4 * most).bit_length())
    there = np.zeros((2, 1 << bits), np.bool_)  # whether a key occurs in a set, by its slot

    def slots(row: U64) -> U64:
        return (row & chosen) * _MIX >> np.uint64(HASH_BITS - bits)

    def note(which: int, number: int) -> None:
        row = sets[which][number]
        there[which, slots(row[_in_band(row, moves[0], bounds)])] = True

    def keep(which: int, number: int) -> tuple[U64, Int64]:
        row = sets[which][number]
        at = _in_band(row, moves[0], bounds)
        at = at[there[1 - which, slots(row[at])]]
        entries = at + number * len(row)
        return _moved(row[at], moves), ~entries if which else entries

    rows = [(which, number) for which in (0, 1) for number in range(len(sets[which]))]
    for _ in each(note, *zip(*rows, strict=True)):
        pass
    values, entries = zip(*each(keep, *zip(*rows, strict=True)), strict=True)
    return np.concatenate(values), np.concatenate(entries)


def _in_band(row: U64, move: Move, bounds: tuple[int, int]) -> Int64:
    """Return the positions of the hashes whose band is in [start, stop): int64 [K]."""
    (low, _, width), (start, stop) = move, bounds
    if stop - start == 1 << width:
        return np.arange(len(row))
    band = row >> np.uint64(low) & np.uint64((1 << width) - 1)
    return np.flatnonzero((band >= start) & (band < stop))


def _pairs(values: U64, entries: Int64, key_bits: int, max_distance: int) -> Iterator[Pairs]:
    """Yield the pairs of hashes of a part that agree in their first ``key_bits``; see ``_with_partners``.

    Yields the pairs of neighbours, then of next but one neighbours and so on; see ``candidates``.
    """
    order = np.argsort(values, kind="stable")
    values, entries = values[order], entries[order]
    del order
    limit = np.uint64(1 << (HASH_BITS - key_bits))
    at = np.flatnonzero(values[1:] ^ values[:-1] < limit)
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


def _layout(chosen: tuple[int, ...]) -> tuple[list[Move], int]:
    """Return moves (from, to, width) that bring the chosen bands to the top, and the bits of those bands."""
    edges = [HASH_BITS * at // _BANDS for at in range(_BANDS + 1)]
    bands = [(low, high - low) for low, high in pairwise(edges)]
    ordered = [bands[at] for at in chosen] + [band for at, band in enumerate(bands) if at not in chosen]
    ends = accumulate((width for _, width in ordered), initial=0)
    moves = [(low, HASH_BITS - end - width, width) for (low, width), end in zip(ordered, ends, strict=False)]
    return moves, sum(bands[at][1] for at in chosen)


def _moved(values: U64, moves: list[Move]) -> U64:
    """Return the values with bands of bits moved to other places: uint64 [N]."""
    moved = np.zeros_like(values)
    for low, to, width in moves:
        band = values >> np.uint64(low)
        band &= np.uint64((1 << width) - 1)
        band <<= np.uint64(to)
        moved |= band
    return moved
