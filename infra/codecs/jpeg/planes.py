"""Turn and scale planes of YCbCr, and lay them on a canvas, without converting them to RGB.

The way from JPEG to JPEG that needs no colour conversion and no upsampling of chroma. Each plane is scaled
separately. Chroma goes from its stored size straight to half the size of the result (4:2:0), whatever the
sampling of the source.

Planes of large photographs are decoded scaled (``decoding_scale``). Their samples of 2, 4 or 8 pixels may
reach beyond the picture or the window, so only the part inside is averaged.
"""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.codecs.geometry import MIRRORED, TRANSPOSED, UPSIDE_DOWN, Geometry, resize
from shardmill.infra.codecs.jpeg.scales import STORED, scale_for
from shardmill.infra.codecs.jpeg.turbojpeg import Planes
from shardmill.infra.native.area import window_average

_NEUTRAL = 128  # chroma without colour


def decoding_scale(to: Geometry, sample: tuple[int, int], orientation: int, channels: int) -> int:
    """Return the scale at which the planes of a JPEG are decoded.

    Args:
        to: where the upright picture goes.
        sample: height and width of a chroma sample of the stored picture (pixels).
        orientation: EXIF orientation of the stored picture.
        channels: of the result.

    Returns:
        Side of a decoded sample: 1, 2, 4 or 8 pixels. A scaled plane keeps about three samples or more for
        each new one.
    """
    of_chroma = sample[::-1] if orientation in TRANSPOSED else sample
    coarsest = [max(1.0, side / 2) if channels == 3 else 1.0 for side in of_chroma]
    ratio = min(to.window[2 + side] / (to.scaled[side] * coarsest[side]) for side in (0, 1))
    return scale_for(ratio, STORED)


def turns_exactly(planes: Planes, orientation: int) -> bool:
    """Tell whether the planes can be turned upright without moving colour.

    A side that is reversed must end with a whole chroma sample. Else the sample that sticks out at its end
    would stick out at its beginning, and all chroma would be displaced. Scaled planes know where they begin.
    """
    if planes.scale > 1:
        return True
    height, width = planes.y.shape
    rows, columns = orientation in UPSIDE_DOWN, orientation in MIRRORED
    if orientation in TRANSPOSED:
        rows, columns = columns, rows
    return not (rows and height % planes.vertical) and not (columns and width % planes.horizontal)


def turn_upright(planes: Planes, orientation: int) -> Planes:
    """Return the planes of the upright picture."""
    if orientation == 1:
        return planes
    y, (top, left, height, width) = _turned(planes.y, orientation), planes.picture
    horizontal, vertical = planes.horizontal, planes.vertical
    if orientation in TRANSPOSED:
        horizontal, vertical = vertical, horizontal
        top, left, height, width = left, top, width, height
    if orientation in UPSIDE_DOWN:
        top = y.shape[0] * planes.scale - height - top
    if orientation in MIRRORED:
        left = y.shape[1] * planes.scale - width - left
    cb, cr = (None if plane is None else _turned(plane, orientation) for plane in (planes.cb, planes.cr))
    return Planes(y, cb, cr, horizontal, vertical, planes.scale, (top, left, height, width))


def _turned(plane: Pixels, orientation: int) -> Pixels:
    if orientation in TRANSPOSED:
        plane = cast(Pixels, cv2.transpose(plane))
    rows, columns = orientation in UPSIDE_DOWN, orientation in MIRRORED
    if rows or columns:
        plane = cast(Pixels, cv2.flip(plane, -1 if rows and columns else int(columns)))
    return plane


def luma_of_picture(planes: Planes) -> Pixels:
    """Return the luma of the whole picture, with as many samples as the planes have: uint8 [h, w]."""
    if planes.scale == 1:
        return planes.y
    top, left, height, width = (edge / planes.scale for edge in planes.picture)
    return window_average(planes.y, (top, left, height, width), (int(height), int(width)))


def cuts_exactly(planes: Planes, window: tuple[int, int, int, int]) -> bool:
    """Tell whether a window (y, x, height, width) of the picture can be cut out without moving colour.

    It must begin with whole chroma samples, unless the planes were decoded scaled.
    """
    return planes.scale > 1 or (window[0] % planes.vertical == 0 and window[1] % planes.horizontal == 0)


def fit(planes: Planes, to: Geometry, channels: int, background: tuple[int, int, int]) -> Planes:
    """Cut and scale a picture, and lay it on its canvas.

    Args:
        planes: upright.
        to: window, scale and place on the canvas; the window must cut the planes exactly.
        channels: 1 for grey, 3 for colour with chroma samples of 2×2 pixels (neutral for a grey picture).
        background: red, green and blue of the canvas around the picture.
    """
    top, left, height, width = to.window
    if planes.scale > 1:
        y = _averaged(planes.y, planes, to, (1, 1))
    else:
        y = resize(planes.y[top : top + height, left : left + width], to.scaled)
    luma, *chroma_values = _ycbcr(background)
    y = _on_canvas(y, to.canvas, to.offset, luma)
    if channels == 1:
        return Planes(y)
    canvas = -(-to.canvas[0] // 2), -(-to.canvas[1] // 2)
    offset = to.offset[0] // 2, to.offset[1] // 2
    chroma = []
    for plane, value in zip((planes.cb, planes.cr), chroma_values, strict=True):
        small = _scaled_chroma(plane, planes, to)
        chroma.append(_on_canvas(small, canvas, offset, value))
    return Planes(y, chroma[0], chroma[1], 2, 2)


def _scaled_chroma(plane: Pixels | None, planes: Planes, to: Geometry) -> Pixels:
    """Cut the window out of a plane of chroma, and scale it to samples of 2×2 pixels."""
    scaled = -(-to.scaled[0] // 2), -(-to.scaled[1] // 2)
    if plane is None:
        return np.full(scaled, _NEUTRAL, np.uint8)
    vertical, horizontal = planes.vertical, planes.horizontal
    if planes.scale > 1:
        return _averaged(plane, planes, to, (vertical, horizontal), per=2)
    top, left, height, width = to.window
    rows, columns = (
        _samples_covered(height, vertical, to.scaled[0]),
        _samples_covered(width, horizontal, to.scaled[1]),
    )
    part = plane[top // vertical :, left // horizontal :][:rows, :columns]
    missing = rows - part.shape[0], columns - part.shape[1]
    if missing != (0, 0):
        part = cast(Pixels, cv2.copyMakeBorder(part, 0, missing[0], 0, missing[1], cv2.BORDER_REPLICATE))
    return resize(part, scaled)


def _averaged(plane: Pixels, planes: Planes, to: Geometry, sample: tuple[int, int], per: int = 1) -> Pixels:
    """Average the window of a plane that was decoded scaled.

    Args:
        plane: one of ``planes``.
        planes: upright.
        to: window and scale.
        sample: height and width of a sample of the plane (samples of y).
        per: height and width of a sample of the result (pixels of the result).
    """
    size = -(-to.scaled[0] // per), -(-to.scaled[1] // per)
    pixels = planes.scale * sample[0], planes.scale * sample[1]  # that a sample covers
    # If a side is odd after scaling, its last sample of chroma reaches a pixel beyond the picture.
    reached = size[0] * per / to.scaled[0], size[1] * per / to.scaled[1]
    window = (
        (planes.picture[0] + to.window[0]) / pixels[0],
        (planes.picture[1] + to.window[1]) / pixels[1],
        to.window[2] * reached[0] / pixels[0],
        to.window[3] * reached[1] / pixels[1],
    )
    return window_average(plane, window, size)


def _samples_covered(length: int, size: int, scaled: int) -> int:
    """Return how many chroma samples of the source the scaled plane of chroma covers.

    If a side is odd after scaling, its last sample reaches a pixel beyond the picture. The source must be
    followed equally far. Else all chroma would be stretched by that pixel.

    Args:
        length: side of the source (pixels).
        size: side of a chroma sample in the source (pixels).
        scaled: side after scaling (pixels).
    """
    return max(1, round((scaled + scaled % 2) * length / (scaled * size)))


def _on_canvas(plane: Pixels, canvas: tuple[int, int], offset: tuple[int, int], value: int) -> Pixels:
    height, width = plane.shape
    if (height, width) == canvas:
        return plane
    whole = np.full(canvas, value, np.uint8)
    whole[offset[0] : offset[0] + height, offset[1] : offset[1] + width] = plane
    return whole


def _ycbcr(color: tuple[int, int, int]) -> tuple[int, int, int]:
    """Convert RGB to the full-range YCbCr of JFIF 1.02."""
    red, green, blue = color
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    cb, cr = _NEUTRAL + (blue - y) / 1.772, _NEUTRAL + (red - y) / 1.402
    return round(y), min(255, round(cb)), min(255, round(cr))  # pure blue and red lie at 255.5
