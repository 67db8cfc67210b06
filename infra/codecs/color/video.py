"""The pixels of a decoded frame of a video: 8 bits of RGB, upright.

Matrices and ranges are those of ITU-T H.273. As ffmpeg takes it, a video that names no matrix has that of
BT.601, and one that names no range has the narrow one, or the full one if it is grey. Samples of colour that
stand for several pixels are repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.formats import ImageRejected

_Table = npt.NDArray[np.int32]
Planes = Sequence[npt.NDArray[np.uint8] | npt.NDArray[np.uint16]]

_YUV = re.compile(r"yuv(j?)(420|422|444|440|411|410)p(?:(9|10|12|14|16)le)?|gray(?:(9|10|12|14|16)le)?")
_SUBSAMPLED: Final = {
    "420": (1, 1), "422": (0, 1), "444": (0, 0), "440": (1, 0), "411": (0, 2), "410": (2, 2),
}  # fmt: skip
# Formats that hold the samples of another one in another order.
_REORDERED: Final = {
    **dict.fromkeys(("rgb24", "bgr24", "rgb0", "bgr0", "0rgb", "0bgr", "gbrp", "pal8"), "rgb24"),
    **dict.fromkeys(("rgba", "bgra", "argb", "abgr"), "rgba"),
    **dict.fromkeys(("yuyv422", "uyvy422", "yvyu422"), "yuv422p"),
    **dict.fromkeys(("nv12", "nv21"), "yuv420p"),
}
_NARROW, _FULL = 1, 2  # ranges
_UNSPECIFIED: Final = 2
# Matrix -> Kr and Kb.
_WEIGHTS: Final = {
    1: (0.2126, 0.0722), 4: (0.30, 0.11), 5: (0.299, 0.114), 6: (0.299, 0.114), 7: (0.212, 0.087),
}  # fmt: skip
_MATRIX_OF_UNSPECIFIED: Final = 6
_HDR: Final = {16: "PQ", 18: "HLG"}  # transfer functions
_SHIFT: Final = 20
_BAND: Final = 64  # rows that are converted at a time


def rgb_of(frame: Any) -> npt.NDArray[np.uint8]:
    """Return the pixels of a frame, turned as its display matrix says.

    Args:
        frame: an ``av.VideoFrame``.

    Returns:
        uint8 [H, W, 3], or [H, W, 4] with alpha.

    Raises:
        ImageRejected: its samples or colours are of a kind that is not converted.
    """
    return upright(_converted(frame), _display_matrix(frame))


def _converted(frame: Any) -> npt.NDArray[np.uint8]:
    name = _REORDERED.get(frame.format.name, frame.format.name)
    if int(frame.color_trc) in _HDR:
        raise ImageRejected(
            "unsupported", f"its colours are HDR ({_HDR[int(frame.color_trc)]}), which is not converted"
        )
    if name in ("rgb24", "rgba"):
        pixels: npt.NDArray[np.uint8] = frame.to_ndarray(format=name)
        return pixels
    found = _YUV.fullmatch(name)
    if found is None:
        raise ImageRejected("unsupported", f"its pixels have the format {name}, which is not converted")
    bits = int(found[3] or found[4] or 8)
    matrix = int(frame.colorspace)
    matrix = _MATRIX_OF_UNSPECIFIED if matrix == _UNSPECIFIED or found[2] is None else matrix
    if matrix not in _WEIGHTS:
        raise ImageRejected(
            "unsupported", f"its colours have the matrix {matrix} of H.273, which is not converted"
        )
    is_grey = found[2] is None
    is_full = bool(found[1]) or (
        int(frame.color_range) != _NARROW if is_grey else int(frame.color_range) == _FULL
    )
    coding = Coding(matrix, bits, is_full, (0, 0) if is_grey else _SUBSAMPLED[found[2]])
    planes = [_samples(plane, bits) for plane in frame.reformat(format=name).planes]
    if is_grey:
        grey = _rounded(_tables(coding)[0][planes[0]])
        return np.repeat(grey[:, :, None], 3, axis=2)
    return yuv_to_rgb(planes, coding)


def _samples(plane: Any, bits: int) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16]:
    """Return a plane as uint8 or uint16 [H, W]."""
    if plane.line_size < 0:
        raise ImageRejected("unsupported", "its lines are stored from the bottom up, which is not read")
    if bits == 8:
        return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]
    lines = np.frombuffer(plane, np.dtype("<u2")).reshape(plane.height, plane.line_size // 2)
    # A damaged file may have samples of more bits than it says.
    return np.minimum(lines[:, : plane.width], np.uint16((1 << bits) - 1))


@dataclass(frozen=True)
class Coding:
    """How samples stand for colours.

    Attributes:
        matrix: ``MatrixCoefficients`` of H.273.
        bits: bits of a sample.
        is_full: samples have the full range.
        subsampled: a sample of colour stands for 2^a rows and 2^b columns: a and b.
    """

    matrix: int
    bits: int
    is_full: bool
    subsampled: tuple[int, int]


def yuv_to_rgb(planes: Planes, coding: Coding) -> npt.NDArray[np.uint8]:
    """Convert planes of Y', Cb and Cr to R'G'B', within half a level and a thousandth.

    Args:
        planes: uint8 or uint16 [H, W], and twice [⌈H / 2^a⌉, ⌈W / 2^b⌉].
        coding: of the samples.

    Returns:
        uint8 [H, W, 3].
    """
    height, width = planes[0].shape
    pixels = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, _BAND):  # 32-bit numbers of a whole frame would take much memory
        of_colour = slice(top >> coding.subsampled[0], (top + _BAND) >> coding.subsampled[0])
        rows = slice(top, top + _BAND)
        _convert_rows([planes[0][rows], planes[1][of_colour], planes[2][of_colour]], coding, pixels[rows])
    return pixels


def _convert_rows(planes: Planes, coding: Coding, out: npt.NDArray[np.uint8]) -> None:
    luma, blue, red = planes
    brightness, red_of_red, green_of_red, green_of_blue, blue_of_blue = _tables(coding)
    base = brightness[luma]
    parts = (red_of_red[red], green_of_red[red] + green_of_blue[blue], blue_of_blue[blue])
    for channel, part in enumerate(parts):
        for axis, power in enumerate(coding.subsampled):
            part = np.repeat(part, 1 << power, axis=axis) if power else part
        out[:, :, channel] = _rounded(base + part[: luma.shape[0], : luma.shape[1]])


def _rounded(values: _Table) -> npt.NDArray[np.uint8]:
    levels: npt.NDArray[np.uint8] = np.clip(values >> _SHIFT, 0, 255).astype(np.uint8)
    return levels


@cache
def _tables(coding: Coding) -> tuple[_Table, ...]:
    """Return what each sample adds: Y' to all, Cr to R', Cr and Cb to G', Cb to B', times 2^20.

    The offset of Y' includes one half, so that cutting off the fraction rounds.
    """
    of_red, of_blue = _WEIGHTS[coding.matrix]
    of_green = 1 - of_red - of_blue
    scale = 1 << (coding.bits - 8)
    samples = np.arange(1 << coding.bits, dtype=np.float64)
    middle = 128 * scale
    if coding.is_full:
        luma, chroma = samples / (256 * scale - 1), (samples - middle) / (256 * scale - 1)
    else:
        luma, chroma = (samples - 16 * scale) / (219 * scale), (samples - middle) / (224 * scale)
    factors = (
        2 * (1 - of_red),
        -2 * of_red * (1 - of_red) / of_green,
        -2 * of_blue * (1 - of_blue) / of_green,
        2 * (1 - of_blue),
    )
    levels = [luma + 0.5 / 255, *(chroma * factor for factor in factors)]
    return tuple(np.rint(level * 255 * (1 << _SHIFT)).astype(np.int32) for level in levels)


def _display_matrix(frame: Any) -> tuple[int, int, int, int]:
    """Return a, b, c, d of the display matrix: a pixel at x, y is shown at ax + cy, bx + dy."""
    for part in frame.side_data:
        if part.type.name == "DISPLAYMATRIX":
            numbers = np.frombuffer(bytes(part), np.int32)
            a, b, c, d = (int(np.sign(numbers[at])) for at in (0, 1, 3, 4))
            return a, b, c, d
    return 1, 0, 0, 1


def upright(pixels: npt.NDArray[np.uint8], matrix: tuple[int, int, int, int]) -> npt.NDArray[np.uint8]:
    """Turn and mirror pixels.

    Args:
        pixels: uint8 [H, W, C].
        matrix: signs of a, b, c, d; a pixel at x, y comes to ax + cy, bx + dy.

    Raises:
        ImageRejected: the angle is no multiple of 90 degrees.
    """
    a, b, c, d = matrix
    if a and d and not (b or c):
        across, down = a, d
    elif b and c and not (a or d):
        pixels, across, down = pixels.transpose(1, 0, 2), c, b
    else:
        raise ImageRejected("unsupported", "it is shown turned by no multiple of 90 degrees")
    return np.ascontiguousarray(pixels[::down, ::across])
