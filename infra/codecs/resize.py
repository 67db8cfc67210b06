"""Scaling without aliasing, and the sizes that it leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import cv2
import numpy as np
from PIL import Image

from infra.codecs.area import area_average
from infra.codecs.formats import Pixels

Resample = Literal["area", "lanczos"]

# Parallelism comes from the jobs above, one image a thread; a pool in each call would only fight it.
cv2.setNumThreads(1)


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large images are stored.

    Attributes:
        mode: "short" or "long": that side is brought to ``height``; "pad" or "crop": exactly ``height`` ×
            ``width``; "none": as they are.
        height, width: pixels.
        upscale: enlarge smaller images too.
    """

    mode: Literal["short", "long", "pad", "crop", "none"]
    height: int
    width: int
    upscale: bool = False


@dataclass(frozen=True, slots=True)
class Geometry:
    """From an upright image to the stored one: cut a window out, scale it, lay it on a canvas.

    Attributes:
        window: y, x, height, width in the image (pixels); y and x are even, so that the chroma samples of
            4:2:0 are cut between, not through.
        scaled: height, width of the window after scaling (pixels).
        canvas: height, width of the stored image (pixels).
        offset: y, x of the scaled window on the canvas (pixels), even too.
    """

    window: tuple[int, int, int, int]
    scaled: tuple[int, int]
    canvas: tuple[int, int]
    offset: tuple[int, int]

    def keeps_all_of(self, height: int, width: int) -> bool:
        """Whether nothing of a picture of this size is cut off, and nothing is put around it."""
        return self.window == (0, 0, height, width) and self.canvas == self.scaled


def geometry(height: int, width: int, sizing: Sizing) -> Geometry:
    """Where the pixels of an upright image of this size go.

    Without ``upscale`` nothing is enlarged: a smaller image lies on the canvas of "pad" and "crop" as it is.
    """
    if sizing.mode in ("pad", "crop"):
        return _exact(height, width, sizing)
    side = {"short": min, "long": max}.get(sizing.mode)
    ratio = sizing.height / side(height, width) if side else 1.0
    scaled = _scaled(height, width, ratio if sizing.upscale else min(1.0, ratio))
    return Geometry((0, 0, height, width), scaled, scaled, (0, 0))


def _scaled(height: int, width: int, ratio: float) -> tuple[int, int]:
    return max(1, round(height * ratio)), max(1, round(width * ratio))


def _exact(height: int, width: int, sizing: Sizing) -> Geometry:
    canvas = sizing.height, sizing.width
    ratios = sizing.height / height, sizing.width / width
    wanted = min(ratios) if sizing.mode == "pad" else max(ratios)
    ratio = wanted if sizing.upscale else min(1.0, wanted)
    window = height, width
    if sizing.mode == "crop":
        window = _within(canvas[0] / ratio, height), _within(canvas[1] / ratio, width)
    if sizing.mode == "crop" and ratio == wanted:
        scaled = canvas
    else:
        scaled = _within(window[0] * ratio, canvas[0]), _within(window[1] * ratio, canvas[1])
    return Geometry(
        (_centre(height - window[0]), _centre(width - window[1]), *window),
        scaled,
        canvas,
        (_centre(canvas[0] - scaled[0]), _centre(canvas[1] - scaled[1])),
    )


def _within(length: float, most: int) -> int:
    return max(1, min(most, round(length)))


def _centre(rest: int) -> int:
    return rest // 2 & ~1


def short_side_size(height: int, width: int, short_side: int) -> tuple[int, int]:
    """(height, width) after scaling the shorter side down to ``short_side``; never larger than it was."""
    return geometry(height, width, Sizing("short", short_side, short_side)).scaled


def resize_short_side(pixels: Pixels, short_side: int) -> Pixels:
    """Shrink so that the shorter side is ``short_side``, by area averaging (which cannot alias).

    Args:
        pixels: uint8 [H, W, C].
        short_side: pixels; smaller images stay as they are.

    Returns:
        uint8 [h, w, C].
    """
    return resize(pixels, short_side_size(pixels.shape[0], pixels.shape[1], short_side))


def resize(image: Pixels, size: tuple[int, int], resample: Resample = "area") -> Pixels:
    """Scale an image or a plane.

    ``area`` averages over the area that a new pixel covers, and where a side grows interpolates linearly.
    ``lanczos`` is the filter of three lobes, widened by the ratio where a side shrinks.

    Args:
        image: uint8 [H, W] or [H, W, C].
        size: new height and width (pixels).

    Returns:
        uint8 [h, w] or [h, w, C]; the image itself where it has that size.
    """
    if image.shape[:2] == size:
        return image
    scaled = _area(image, size) if resample == "area" else _lanczos(image, size)
    return scaled.reshape(*size, *image.shape[2:])


def _area(image: Pixels, size: tuple[int, int]) -> Pixels:
    # OpenCV's INTER_AREA averages only where neither side grows; else it repeats pixels.
    shrunk = min(size[0], image.shape[0]), min(size[1], image.shape[1])
    if shrunk != image.shape[:2]:
        image = area_average(image, shrunk)
    if shrunk != size:
        image = cast(Pixels, cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR))
    return image


def _lanczos(image: Pixels, size: tuple[int, int]) -> Pixels:
    grey = image.ndim == 3 and image.shape[2] == 1
    picture = Image.fromarray(image[:, :, 0] if grey else image)
    return np.asarray(picture.resize(size[::-1], Image.Resampling.LANCZOS))
