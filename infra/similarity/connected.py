"""Looks that are nearly the same, directly or through a chain.

1. Hashes give candidates: an image, turned, and a window of another one (looks, search).
2. A candidate pair looks the same if the structures of both differ little.

Images that are connected already stand for each other: of many only some go on searching, which bounds the
work on thousands of nearly equal images.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.format.contract import LOOK_BYTES, LOOK_SIDE
from shardmill.infra.similarity import LookRules
from shardmill.infra.similarity.looks import (
    SYMMETRIES,
    WINDOWS,
    Int8,
    NewArray,
    coefficients,
    difference,
    hash_all,
    least_difference,
    structure,
    turned,
    windowed,
)
from shardmill.infra.similarity.search import candidates, choices
from shardmill.infra.splitmix import U64

# Of a group of so many images, so many go on searching.
_SEARCHING = 32
# A member that differs less from its nearest neighbour than this is not compared with further members.
_CLOSE = 0.02
# Windows of images that differ so many times as much as allowed are not moved to fit better.
_UNLIKE = 4
_PAIRS_AT_A_TIME = 1 << 14
_THREADS = 4  # at most; each takes some megabytes

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]


class Components:
    """The connected components of a growing graph. The smallest node of a component identifies it.

    Hooking and pointer jumping after Shiloach and Vishkin, "An O(log n) parallel connectivity algorithm",
    1982.

    Attributes:
        root: int32 [N], the smallest node of each node's component.
    """

    def __init__(self, num_nodes: int) -> None:
        self.root: Int32 = np.arange(num_nodes, dtype=np.int32)

    def connect(self, one: Int64, other: Int64) -> None:
        """Add edges: int64 [E] each, the nodes at their ends."""
        while True:
            roots_one, roots_other = self.root[one], self.root[other]
            apart = roots_one != roots_other
            if not apart.any():
                return
            one, other = one[apart], other[apart]
            low = np.minimum(roots_one[apart], roots_other[apart])
            high = np.maximum(roots_one[apart], roots_other[apart])
            # Several edges may pull one component to several others. It follows one of them now; the other
            # edges stay for the next round.
            np.minimum.at(self.root, high, low)
            self._flatten()

    def _flatten(self) -> None:
        while True:
            jumped = self.root[self.root]
            if np.array_equal(jumped, self.root):
                return
            self.root = jumped


def connected_looks(looks: pa.Array, rules: LookRules) -> tuple[npt.NDArray[np.int32], Float64]:
    """Connect looks that are nearly the same.

    Args:
        looks: binary [N] without nulls, one or two views each.
        rules: how much they may differ.

    Returns:
        int32 [N], the component of each, and float64 [N], how much the nearest other look differs, infinite
        if none is near.
    """
    encoded = looks.dictionary_encode()
    which = np.asarray(encoded.indices.to_numpy(), np.int64)
    distinct = encoded.dictionary if len(encoded.dictionary) < len(looks) else looks
    del encoded
    pa.default_memory_pool().release_unused()  # it took several times the bytes of the looks
    shared = np.bincount(which, minlength=len(distinct)) > 1
    views, owners = _views(distinct)
    component, nearest = _Search(views, owners, len(shared), rules).run()
    nearest[shared] = 0
    return component[which], nearest[which]


def connected_views(views: Int8, owners: Int64, count: int, rules: LookRules) -> npt.NDArray[np.int32]:
    """Connect looks that are nearly the same, with what grows fastest in temporary files (``mapped``).

    Args:
        views: int8 [V, 14, 14].
        owners: int64 [V], the look that each is a view of; they rise.
        count: number of looks.
        rules: how much they may differ.

    Returns:
        int32 [count], the component of each.
    """
    return _Search(views, owners, count, rules, mapped).run()[0]


def mapped(shape: tuple[int, ...], kind: Any) -> npt.NDArray[Any]:
    """Make an array of zeros in a temporary file: the system writes it out where memory is short."""
    if not math.prod(shape):
        return np.empty(shape, kind)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, kind, "w+", shape=shape)


def _views(looks: pa.Array) -> tuple[Int8, Int64]:
    """Return the views of looks without nulls: int8 [V, 14, 14], and the look of each: int64 [V]."""
    if not len(looks):
        return np.empty((0, LOOK_SIDE, LOOK_SIDE), np.int8), np.empty(0, np.int64)
    width = np.int64 if pa.types.is_large_binary(looks.type) else np.int32
    offsets = np.frombuffer(looks.buffers()[1], width)[looks.offset : looks.offset + len(looks) + 1]
    data = np.frombuffer(looks.buffers()[2], np.int8)[offsets[0] : offsets[-1]]
    owners = np.repeat(np.arange(len(looks)), np.diff(offsets) // LOOK_BYTES)
    return data.reshape(-1, LOOK_SIDE, LOOK_SIDE), owners


class _Search:
    """Search for looks that are nearly the same.

    Args:
        views: int8 [V, 14, 14].
        owners: int64 [V], the look that each is a view of.
        count: number of looks.
        config: how much they may differ, and which copies are looked for.
        new: makes the arrays of hashes.
    """

    def __init__(
        self, views: Int8, owners: Int64, count: int, config: LookRules, new: NewArray = np.empty
    ) -> None:
        self._new = new
        self._views, self._owners, self._config = views, owners, config
        self._windows = WINDOWS if config.crops else WINDOWS[:1]
        self._symmetries = SYMMETRIES if config.symmetries else SYMMETRIES[:1]
        self._components = Components(count)
        self._nearest = np.full(count, np.inf)

    def run(self) -> tuple[npt.NDArray[np.int32], Float64]:
        """Return the smallest look that each is connected with, and how much the nearest one differs.

        Returns:
            int32 [looks], and float64 [looks], infinite if no look is near.
        """
        if len(self._views) and self._config.max_difference:
            with ThreadPoolExecutor(threads := min(_THREADS, pa.cpu_count())) as pool:
                self._search(threads, pool.map)
        return self._components.root, self._nearest

    def _search(self, at_a_time: int, each: Callable[..., Iterator[Any]]) -> None:
        """Compare all candidates, which are found by so many threads at a time."""
        cut, whole = hash_all(self._views, self._windows, self._symmetries, each, self._new)
        searching, most = np.arange(len(self._views)), self._config.max_distance
        for chosen in choices():
            still = self._searching(searching)
            if not still.all():
                searching, cut, whole = searching[still], self._kept(cut, still), self._kept(whole, still)
            for at, to in _batched(candidates(cut, whole, chosen, most, at_a_time, each)):
                self._compare(searching, at, to)

    def _kept(self, hashes: U64, still: npt.NDArray[np.bool_]) -> U64:
        """Return the columns of hashes whose views go on searching."""
        kept: U64 = self._new((len(hashes), int(np.count_nonzero(still))), np.uint64)
        for row, own in zip(hashes, kept, strict=True):
            own[:] = row[still]
        return kept

    def _searching(self, views: Int64) -> npt.NDArray[np.bool_]:
        """Return which views go on searching: all but some of those in large groups."""
        roots = self._components.root[self._owners[views]]
        order = np.argsort(roots, kind="stable")
        ranks = np.arange(len(order)) - np.searchsorted(roots[order], roots[order])
        still = np.empty(len(views), np.bool_)
        still[order] = ranks < _SEARCHING
        return still

    def _compare(self, searching: Int64, at: Int64, to: Int64) -> None:
        """Connect the candidates that look the same: positions among windows, and among turned views."""
        window, one = np.divmod(at, len(searching))
        symmetry, other = np.divmod(to, len(searching))
        one, other = searching[one], searching[other]
        wanted = self._is_open(one, other)
        window, symmetry, one, other = (part[wanted] for part in (window, symmetry, one, other))
        values = coefficients(self._views[one])
        turned_others = self._turned(symmetry, other)
        if self._config.crops:
            alike = self._config.max_difference
            apart = least_difference(values, self._windows[window], turned_others, alike, _UNLIKE * alike)
        else:
            apart = difference(structure(windowed(values, self._windows[window])), turned_others)
        near = apart <= self._config.max_difference
        self._join(self._owners[one[near]], self._owners[other[near]], apart[near])

    def _is_open(self, one: Int64, other: Int64) -> npt.NDArray[np.bool_]:
        """Return which pairs of views are worth comparing."""
        one, other = self._owners[one], self._owners[other]
        connected = self._components.root[one] == self._components.root[other]
        close = np.maximum(self._nearest[one], self._nearest[other]) < _CLOSE
        return np.asarray((one != other) & ~(connected & close))

    def _turned(self, symmetries: Int64, views: Int64) -> Float64:
        values = windowed(coefficients(self._views[views]), WINDOWS[0])
        found = np.empty_like(values)
        for number in np.unique(symmetries):
            here = symmetries == number
            found[here] = turned(values[here], self._symmetries[number])
        return structure(found)

    def _join(self, one: Int64, other: Int64, apart: Float64) -> None:
        if len(one):
            np.minimum.at(self._nearest, one, apart)
            np.minimum.at(self._nearest, other, apart)
            self._components.connect(one, other)


def _batched(pairs: Iterator[tuple[Int64, Int64]]) -> Iterator[tuple[Int64, Int64]]:
    """Yield the same pairs in arrays of about _PAIRS_AT_A_TIME."""
    waiting: list[tuple[Int64, Int64]] = []
    count = 0
    for one, other in pairs:
        for start in range(0, len(one), _PAIRS_AT_A_TIME):
            waiting.append((one[start : start + _PAIRS_AT_A_TIME], other[start : start + _PAIRS_AT_A_TIME]))
            count += len(waiting[-1][0])
            if count >= _PAIRS_AT_A_TIME:
                yield _joined(waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[tuple[Int64, Int64]]) -> tuple[Int64, Int64]:
    one, other = zip(*parts, strict=True)
    return np.concatenate(one), np.concatenate(other)
