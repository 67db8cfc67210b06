"""Area averaging, compiled: the bytes of OpenCV's ``INTER_AREA`` in a sixth of the time.

``area.c`` is built when the project is installed, if there is a C compiler (gcc or clang). Where it was not,
or where it does not give OpenCV's bytes on this machine, OpenCV does the work: what is stored is the same.
From 533×400 to 341×256 a plane takes 75 µs (with AVX2; 110 µs with SSE2). OpenCV takes 460 µs, with which it
takes a third of all that a photograph costs.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt

from infra.compiled import load_compiled

Pixels = npt.NDArray[np.uint8]

_left_to_opencv = False
# Sizes that take every way through the code: few and many pixels to one, odd ends, hardly any change.
_COMPARED = (((37, 61), (23, 40)), ((64, 50), (11, 7)), ((19, 33), (18, 32)), ((21, 90), (21, 31)))


def area_average(image: Pixels, size: tuple[int, int]) -> Pixels:
    """Shrink by averaging over the area that each new pixel covers.

    Args:
        image: uint8 [H, W] or [H, W, C].
        size: new height and width (pixels), neither larger than it was.

    Returns:
        uint8 [h, w] or [h, w, C].
    """
    compiled = None if _left_to_opencv else _library()
    if compiled is None or is_whole_ratio(image.shape[:2], size):
        shrunk = cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
        return cast(Pixels, shrunk).reshape(*size, *image.shape[2:])
    if image.ndim == 2:
        return _average(compiled, image, size)
    planes = [_average(compiled, plane, size) for plane in cv2.split(image)]
    return cast(Pixels, cv2.merge(planes)).reshape(*size, image.shape[2])


def is_compiled() -> bool:
    """Whether the fast code is there and gives what OpenCV gives."""
    return _library() is not None


def is_used() -> bool:
    """Whether it does the work in this process."""
    return not _left_to_opencv and is_compiled()


def leave_to_opencv() -> None:
    """From here on OpenCV does the work in this process: for benchmarks of what the compiled code brings.

    Nor is anything done in one call then (infra.codecs.planar).
    """
    global _left_to_opencv
    _left_to_opencv = True


def is_whole_ratio(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether OpenCV counts in integers: each new pixel covers the same number of whole ones."""
    return not before[0] % after[0] and not before[1] % after[1]


@functools.cache
def _library() -> Any:
    """The compiled code, or None where there is none that serves."""
    compiled = load_compiled(Path(__file__).with_name("_planar"))
    if compiled is None:
        return None
    function = compiled.shardmill_area
    pointer, number, stride = ctypes.c_void_p, ctypes.c_int, ctypes.c_ssize_t
    function.argtypes = (pointer, number, number, stride, pointer, number, number, stride)
    function.restype = number
    return function if _agrees(function) else None


def _agrees(function: Any) -> bool:
    """Whether it gives what the OpenCV of this machine gives, to the bit."""
    for (height, width), size in _COMPARED:
        image = (np.arange(height * width, dtype=np.uint32) * 2654435761 >> 24).astype(np.uint8)
        image = image.reshape(height, width)
        expected = cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
        if not np.array_equal(_average(function, image, size), expected):
            return False
    return True


def _average(function: Any, plane: Pixels, size: tuple[int, int]) -> Pixels:
    if plane.strides[1] != 1:
        plane = np.ascontiguousarray(plane)
    height, width = plane.shape
    small = np.empty(size, np.uint8)
    if function(plane.ctypes.data, height, width, plane.strides[0], small.ctypes.data, *size, size[1]):
        raise MemoryError("no memory for shrinking a picture")
    return small
