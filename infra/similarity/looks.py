"""Looks of images (``shardmill.infra.codecs.measures``): turned, cut, hashed and compared.

A *view* is one look of an image. An image with a border of one shade has two: with the border and without.

A mirrored or turned image has the coefficients of the image with other signs, transposed: 8 *symmetries*. An
image that was cut has nearly the coefficients that a *window* of the image gives by a linear map along each
axis. The window of an image inside its border is the image without the border, so windows find borders too.

The tables are integers, and all sums stay below 2**53, so the results are the same on every machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.format.contract import LOOK_SIDE, ROOT_UNIT
from shardmill.infra.splitmix import U64

HASH_SIDE = 8  # a hash has the signs of the lowest 8×8 coefficients
_COMPARED_SIDE = 12  # the highest coefficients of a window would need some that a look does not have

# Places on an axis are counted in 80ths of it. A window keeps from start to stop of both axes.
_PLACES = 80
_WHOLE_AXIS, _END, _START, _INNER, _MIDDLE = (0, 80), (4, 80), (0, 76), (4, 76), (2, 78)
_WHOLE = (*_WHOLE_AXIS, *_WHOLE_AXIS)
# Start and stop of the vertical and of the horizontal axis.
WINDOWS = np.array([
    _WHOLE,
    (*_INNER, *_INNER),
    *(one + other for one, other in product((_END, _START, _MIDDLE), repeat=2)),
    *(one + _WHOLE_AXIS for one in (_END, _START, _INNER)),
    *(_WHOLE_AXIS + one for one in (_END, _START, _INNER)),
])  # fmt: skip
_MOST_CUT = 8
# How refinement moves start and stop of an axis.
_BOUNDS = ((0, _PLACES - _MOST_CUT), (_MOST_CUT, _PLACES))
_SHIFTS = tuple(shift for shift in product((0, -1, 1), repeat=2) if any(shift))
SYMMETRIES = tuple(product((False, True), repeat=3))  # transposed, then mirrored, then upside down

_MAP_UNIT = 1 << 10
_SAMPLES = 1 << 12
_SMALL_PRODUCT = 1 << 17  # multiplications
_HASHED_AT_A_TIME = 1 << 9  # so that they stay in the cache of a core

NewArray = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int8 = npt.NDArray[np.int8]


@functools.cache
def _axis_maps() -> Float64:
    """Return maps from the coefficients of an axis to those of each of its parts, times ``_MAP_UNIT``.

    A value is the sum of cos(u·w)·cos(v·(start + length·w)) over the middles w of ``_SAMPLES`` equal steps,
    which is a half of two sums of one cosine each. A sum of cosines at equal distances has a closed form.

    Returns:
        float64 [start, places cut off at the end, 14 of u, the part's frequency, 14 of v, the whole's].
    """
    cuts, frequencies = np.arange(_MOST_CUT + 1), np.arange(LOOK_SIDE)
    start, of_part = cuts[:, np.newaxis, np.newaxis, np.newaxis], frequencies[:, np.newaxis]
    length = _PLACES - start - cuts[:, np.newaxis, np.newaxis]
    sums = np.zeros((len(cuts), len(cuts), LOOK_SIDE, LOOK_SIDE))
    for of_whole in (frequencies, -frequencies):
        turn = np.pi * (of_part + of_whole * length / _PLACES)
        middle = np.pi * of_whole * start / _PLACES + turn / 2
        step = turn / (2 * _SAMPLES)
        sums += np.cos(middle) * np.sinc(turn / (2 * np.pi)) / np.sinc(step / np.pi)
    scales = np.where(frequencies == 0, np.sqrt(0.5), 1.0)
    return np.asarray(np.rint(sums * scales[:, np.newaxis] * scales * _MAP_UNIT))


def coefficients(views: Int8) -> Float64:
    """Return the coefficients of views, int8 [V, 14, 14], in 1/16 of a grey level: float64 [V, 14, 14]."""
    values = views.astype(np.float64)
    return np.asarray(np.abs(values) * values)


def windowed(values: Float64, windows: Int64) -> Float64:
    """Return the coefficients of windows of images.

    Args:
        values: float64 [V, 14, 14].
        windows: int64 [V, 4], or [4] for one window of all.

    Returns:
        float64 [V, 14, 14], in units of 2**-24 grey levels.
    """
    down = _axis_maps()[windows[..., 0], _PLACES - windows[..., 1]]
    across = _axis_maps()[windows[..., 2], _PLACES - windows[..., 3]]
    return np.asarray(np.matmul(np.matmul(down, values), np.swapaxes(across, -1, -2)))


def turned(values: Float64, symmetry: tuple[bool, ...]) -> Float64:
    """Return the coefficients, float64 [V, 14, 14], of images that are transposed, mirrored, upside down."""
    transposed, mirrored, upside_down = symmetry
    if transposed:
        values = values.transpose(0, 2, 1)
    signs = np.ones((LOOK_SIDE, LOOK_SIDE))
    if mirrored:
        signs[:, 1::2] *= -1
    if upside_down:
        signs[1::2] *= -1
    return values * signs


def hashes(values: Float64) -> U64:
    """Return the signs of the lowest 8×8 coefficients but the mean: uint64 [V].

    Args:
        values: float64 [V, 14, 14], of any unit.
    """
    bits = values[:, :HASH_SIDE, :HASH_SIDE] > 0
    bits[:, 0, 0] = False
    return np.packbits(bits.reshape(len(values), HASH_SIDE**2), axis=1).view(">u8")[:, 0].astype(np.uint64)


def hash_all(
    views: Int8,
    windows: Int64,
    symmetries: Sequence[tuple[bool, ...]],
    each: Callable[..., Iterable[None]] = map,
    new: NewArray = np.empty,
) -> tuple[U64, U64]:
    """Hash the windows of views, and the views under symmetries.

    Args:
        views: int8 [V, 14, 14].
        windows: int64 [W, 4], of ``WINDOWS``.
        symmetries: S of ``SYMMETRIES``.
        each: ``map``, or one that makes several calls at a time.
        new: makes the arrays of a shape and type.

    Returns:
        uint64 [W, V] and uint64 [S, V].
    """
    of_windows = new((len(windows), len(views)), np.uint64)
    of_turned = new((len(symmetries), len(views)), np.uint64)

    def hash_from(begin: int) -> None:
        part = slice(begin, begin + _HASHED_AT_A_TIME)
        values = coefficients(views[part])
        _hash_windows(values, windows, of_windows[:, part])
        for at, symmetry in enumerate(symmetries):
            of_turned[at, part] = hashes(turned(values, symmetry))

    _axis_maps()  # before threads would make them several times
    for _ in each(hash_from, range(0, len(views), _HASHED_AT_A_TIME)):
        pass
    return of_windows, of_turned


def _hash_windows(values: Float64, windows: Int64, into: U64) -> None:
    """Hash windows of all images, with one matrix product for all windows of the same width and place.

    Args:
        values: float64 [V, 14, 14].
        windows: int64 [W, 4].
        into: uint64 [W, V], takes the hashes.
    """
    maps = _axis_maps()
    for across in np.unique(windows[:, 2:], axis=0):
        here = np.flatnonzero((windows[:, 2:] == across).all(axis=1))
        map_across = maps[across[0], _PLACES - across[1], :HASH_SIDE]
        maps_down = maps[windows[here, 0], _PLACES - windows[here, 1], :HASH_SIDE].reshape(-1, LOOK_SIDE)
        cut = _product(values.reshape(-1, LOOK_SIDE), map_across).reshape(-1, LOOK_SIDE, HASH_SIDE)
        low = _product(np.ascontiguousarray(cut.transpose(0, 2, 1)).reshape(-1, LOOK_SIDE), maps_down)
        low = low.reshape(len(values), HASH_SIDE, len(here), HASH_SIDE)
        for place, at in enumerate(here):
            into[at] = hashes(low[:, :, place].transpose(0, 2, 1))


def _product(rows: Float64, table: Float64) -> Float64:
    """Return ``rows @ table.T`` by small products, since OpenBLAS starts threads for large ones."""
    at_a_time = _SMALL_PRODUCT // table.size
    product = np.empty((len(rows), len(table)))
    for begin in range(0, len(rows), at_a_time):
        np.matmul(rows[begin : begin + at_a_time], table.T, out=product[begin : begin + at_a_time])
    return product


def structure(values: Float64) -> Float64:
    """Return what of the coefficients is compared: float64 [V, 144], integers.

    Large coefficients count more than small ones, but far less than in proportion: a coefficient c (grey
    levels) becomes the eighth root of 1 + |c| / 4, less 1, with the sign of c.

    Args:
        values: float64 [V, 14, 14], in units of 2**-24 grey levels.
    """
    low = values[:, :_COMPARED_SIDE, :_COMPARED_SIDE].reshape(len(values), _COMPARED_SIDE**2)
    sizes = 1 + np.abs(low) / (4 * ROOT_UNIT**2 * _MAP_UNIT**2)
    for _ in range(3):
        sizes = np.sqrt(sizes)
    compressed = np.rint((sizes - 1) * 1024) * np.sign(low)
    compressed[:, 0] = 0
    return compressed


def difference(one: Float64, other: Float64) -> Float64:
    """Return 1 less the cosine of the angle between structures: float64 [P], 0 for the same structure.

    Args:
        one: float64 [P, 144], of ``structure``.
        other: float64 [P, 144].
    """
    sizes = np.sqrt(np.square(one).sum(axis=1) * np.square(other).sum(axis=1))
    return np.asarray(1 - (one * other).sum(axis=1) / np.maximum(sizes, 1))


def least_difference(values: Float64, windows: Int64, other: Float64, alike: float, unlike: float) -> Float64:
    """Return the differences between images and windows of other images: float64 [P].

    The sides of the windows are moved by a place to where the difference is least, first above and below,
    then at the left and at the right. Differences up to ``alike``, and of more than ``unlike``, are returned
    as they are.

    Args:
        values: float64 [P, 14, 14], coefficients of what is cut.
        windows: int64 [P, 4], where to begin.
        other: float64 [P, 144], structures of what it is compared with.
        alike: what differs less is the same anyway.
        unlike: no movement makes the same of what differs more.
    """
    least = difference(structure(windowed(values, windows)), other)
    close = np.flatnonzero((least > alike) & (least <= unlike))
    values, windows, other, best = values[close], windows[close], other[close], least[close]
    for axis in (slice(0, 2), slice(2, 4)):
        begun = windows.copy()
        for shift in _SHIFTS:
            moved = begun.copy()
            moved[:, axis] = np.clip(begun[:, axis] + shift, *_BOUNDS)
            apart = difference(structure(windowed(values, moved)), other)
            nearer = apart < best
            best, windows = np.where(nearer, apart, best), np.where(nearer[:, np.newaxis], moved, windows)
    least[close] = best
    return least
