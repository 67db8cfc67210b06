"""Area averaging, compiled: the bytes of OpenCV's ``INTER_AREA`` in a sixth of its time.

Why: with OpenCV, averaging takes a third of the time that a photograph costs, since OpenCV goes through each
row pixel by pixel and repeats that for every new row. ``area.c`` takes eight rows at a time in vectors.

Gain: preparing 3,783 photographs (400×533 pixels to a short side of 256) takes 7.8 s of CPU time instead of
10.7 s (best of three runs each, all stages).

Reference: OpenCV, and numpy for windows with edges inside pixels, which OpenCV cannot average. Each process
compares the compiled code with both before its first use. They do the work wherever the code is not compiled
or gives other bytes on this machine, so stored images are the same everywhere. ``make test-native`` compares
them on random planes under sanitizers.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt

from shardmill.infra.native.library import Pixels, load_library, scattered_bytes

Window = tuple[float, float, float, float]  # y, x, height, width (pixels)
_Places = npt.NDArray[np.int64]
_Weights = npt.NDArray[np.float32]

# (height, width) before and after. Together they take every branch of the code: few and many old pixels to a
# new one, odd ends, hardly any change.
_COMPARED_SIZES = (((37, 61), (23, 40)), ((64, 50), (11, 7)), ((19, 33), (18, 32)), ((21, 90), (21, 31)))


def area_average(image: Pixels, size: tuple[int, int]) -> Pixels:
    """Shrink an image: each new pixel is the mean of the area that it covers.

    Args:
        image: uint8 [H, W] or [H, W, C].
        size: new height and width (pixels), neither larger than before.

    Returns:
        uint8 [h, w] or [h, w, C].

    Raises:
        MemoryError: there is too little memory.
    """
    function = _compiled()
    if function is None or _is_whole_ratio(image.shape, size):
        return _with_opencv(image, size)
    if image.ndim == 2:
        return _average(function, image, size)
    planes = [_average(function, plane, size) for plane in cv2.split(image)]
    return cast(Pixels, cv2.merge(planes)).reshape(*size, image.shape[2])


def window_average(plane: Pixels, window: Window, size: tuple[int, int]) -> Pixels:
    """Shrink a window of a plane, whose edges may lie inside pixels.

    Args:
        plane: uint8 [H, W].
        window: y, x, height, width (pixels). What reaches beyond the last pixel does not count, but each new
            pixel must begin inside the plane.
        size: new height and width (pixels), neither larger than those of the window.

    Returns:
        uint8 [h, w].

    Raises:
        MemoryError: there is too little memory.
    """
    top, left, height, width = window
    part = plane[int(top) : math.ceil(top + height), int(left) : math.ceil(left + width)]
    inside = top % 1, left % 1, height, width
    if inside == (0, 0, *part.shape):
        return area_average(part, size)
    function = _compiled()
    if function is None:
        return _average_with_numpy(part, size, inside)
    return _average(function, part, size, inside)


class AreaAverage:
    """Shrinks an image that comes in bands of rows, from the top on, to the bytes of ``area_average``.

    Holds the result and a few rows; without compiled code all rows, unless each new pixel covers the same
    number of whole ones.

    Args:
        shape: H, W or H, W, C of the image.
        size: new height and width (pixels), neither larger than before.
    """

    def __init__(self, shape: tuple[int, ...], size: tuple[int, int]) -> None:
        self._shape, self._size = shape, size
        whole = _is_whole_ratio(shape[:2], size)
        self._function: Any = None if whole else _compiled_for_bands()
        self._together = shape[0] // size[0] if whole else shape[0]  # rows that OpenCV averages at a time
        self._waiting: list[Pixels] = []
        self._num_waiting = self._row = 0
        channels = shape[2] if len(shape) == 3 else 1
        self._planes = [np.empty(size, np.uint8) for _ in range(channels)]
        self._states = [np.zeros(2 + -(-size[1] // 8) * 8, np.float32) for _ in range(channels)]

    def add(self, band: Pixels) -> None:
        """Add the next rows, uint8 [rows, W] or [rows, W, C].

        Raises:
            MemoryError: there is too little memory.
        """
        if self._function is None:
            self._collect(band)
            return
        if not len(band):
            return
        planes = cv2.split(band) if band.ndim == 3 else (band,)
        for plane, small, state in zip(planes, self._planes, self._states, strict=True):
            self._add(np.ascontiguousarray(plane) if plane.strides[1] != 1 else plane, small, state)
        self._row += len(band)

    def _add(self, plane: Pixels, small: Pixels, state: npt.NDArray[np.float32]) -> None:
        (height, width), size = self._shape[:2], self._size
        rows = self._row, self._row + len(plane)
        place, stride = plane.ctypes.data, plane.strides[0]
        target = small.ctypes.data, *size, small.strides[0]
        if self._function(
            place, *rows, height, width, stride, *target, state.ctypes.data, 0, 0, height, width
        ):
            raise _no_memory(self._shape, size)

    def _collect(self, band: Pixels) -> None:
        """Let OpenCV average as many rows as make whole new ones."""
        self._waiting.append(band)
        self._num_waiting += len(band)
        ready = self._num_waiting // self._together * self._together
        if not ready:
            return
        rows = self._waiting[0] if len(self._waiting) == 1 else np.concatenate(self._waiting)
        new = ready // self._together if self._together < self._shape[0] else self._size[0]
        shrunk = _with_opencv(rows[:ready], (new, self._size[1]))
        for plane, small in zip(cv2.split(shrunk), self._planes, strict=True):
            small[self._row : self._row + new] = plane
        self._row += new
        self._waiting, self._num_waiting = [rows[ready:].copy()], len(rows) - ready

    def result(self) -> Pixels:
        """Return the image once all rows were added: uint8 [h, w] or [h, w, C]."""
        if len(self._shape) == 2:
            return self._planes[0]
        return cast(Pixels, cv2.merge(self._planes)).reshape(*self._size, self._shape[2])


def _is_whole_ratio(shape: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Tell whether every new pixel covers the same number of whole pixels: then OpenCV sums integers."""
    return not (shape[0] % size[0] or shape[1] % size[1])


def _with_opencv(image: Pixels, size: tuple[int, int]) -> Pixels:
    shrunk = cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
    return cast(Pixels, shrunk).reshape(*size, *image.shape[2:])


def is_compiled() -> bool:
    """Tell whether compiled code does the work."""
    return _compiled() is not None


@functools.cache
def _compiled() -> Any:
    """The function of area.c, or None if there is none or it does not give OpenCV's bytes."""
    library = load_library("_area")
    if library is None:
        return None
    function = library.shardmill_area
    pointer, number, stride = ctypes.c_void_p, ctypes.c_int, ctypes.c_ssize_t
    edges = (ctypes.c_double,) * 4
    function.argtypes = (pointer, number, number, stride, pointer, number, number, stride, *edges)
    function.restype = number
    return function if _agrees(function) else None


@functools.cache
def _compiled_for_bands() -> Any:
    """The function of area.c for bands, or None if there is no code that gives OpenCV's bytes."""
    library = load_library("_area") if _compiled() is not None else None
    function = getattr(library, "shardmill_area_band", None)  # absent in code that was built before
    if function is not None:
        pointer, number, stride = ctypes.c_void_p, ctypes.c_int, ctypes.c_ssize_t
        of_plane = (pointer, number, number, number, number, stride)
        function.argtypes = (*of_plane, pointer, number, number, stride, pointer, *(ctypes.c_double,) * 4)
        function.restype = number
    return function


def _agrees(function: Any) -> bool:
    """Tell whether the function gives the bytes of this machine's OpenCV, and of numpy."""
    for (height, width), size in _COMPARED_SIZES:
        image = scattered_bytes(height, width)
        expected = cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
        if not np.array_equal(_average(function, image, size), expected):
            return False
        window = 0.25, 0.625, height - 0.75, width - 0.5
        expected = _average_with_numpy(image, size, window)
        if not np.array_equal(_average(function, image, size, window), expected):
            return False
    return True


def _average(function: Any, plane: Pixels, size: tuple[int, int], window: Window | None = None) -> Pixels:
    """Shrink one plane, uint8 [H, W], or a window of it, with the compiled function."""
    if plane.strides[1] != 1:
        plane = np.ascontiguousarray(plane)
    height, width = plane.shape
    small = np.empty(size, np.uint8)
    edges = window or (0, 0, height, width)
    place = plane.ctypes.data, height, width, plane.strides[0]
    if function(*place, small.ctypes.data, *size, size[1], *edges):
        raise _no_memory(plane.shape, size)
    return small


def _no_memory(shape: tuple[int, ...], size: tuple[int, int]) -> MemoryError:
    return MemoryError(f"cannot shrink {shape[0]}×{shape[1]} pixels to {size[0]}×{size[1]}: no memory")


def _average_with_numpy(plane: Pixels, size: tuple[int, int], window: Window) -> Pixels:
    """Shrink a window of one plane, uint8 [H, W], with the weights, sums and rounding of area.c."""
    across = _sum_shares(plane.T.astype(np.float32), *_shares(plane.shape[1], window[1], window[3], size[1]))
    down = _sum_shares(across.T, *_shares(plane.shape[0], window[0], window[2], size[0]))
    return np.minimum(np.rint(down), 255).astype(np.uint8)


def _shares(from_: int, origin: float, length: float, to: int) -> tuple[_Places, _Weights]:
    """Return the old pixels that each new one covers, and their weights: int64 and float32 [most, to].

    Args:
        from_: old pixels.
        origin: where the new pixels begin, below 1 (old pixels).
        length: how many old pixels the new ones cover.
        to: new pixels.
    """
    nothing = 1e-3  # smaller parts of a pixel do not count
    scale = 1 / (to / length)
    begin = origin + np.arange(to) * scale
    end, cell = begin + scale, np.minimum(scale, from_ - begin)
    last = np.minimum(end.astype(np.int64), from_ - 1)
    first = np.minimum(np.ceil(begin).astype(np.int64), last)
    places = first - 1 + np.arange(math.ceil(scale) + 3)[:, np.newaxis]
    weights = np.where((places >= first) & (places < last), 1 / cell, 0)
    before, behind = first - begin, end - last
    weights += np.where((places == first - 1) & (before > nothing), before / cell, 0)
    part = np.minimum(np.minimum(behind, 1), cell) / cell
    weights += np.where((places == last) & (behind > nothing), part, 0)
    return np.clip(places, 0, from_ - 1), weights.astype(np.float32)


def _sum_shares(
    lines: npt.NDArray[np.float32], places: _Places, weights: _Weights
) -> npt.NDArray[np.float32]:
    """Return the weighted sums of lines, float32 [new lines, ...], added up in the order of the lines."""
    total: npt.NDArray[np.float32] = lines[places[0]] * weights[0][:, np.newaxis]
    for place, weight in zip(places[1:], weights[1:], strict=True):
        total += lines[place] * weight[:, np.newaxis]
    return total
