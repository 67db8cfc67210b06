"""Scale images without aliasing, and compute stored sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import cv2
import numpy as np
from PIL import Image

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.native.area import area_average
from shardmill.infra.preparation import Resample, Sizing

# Jobs decode one image a thread. OpenCV's own pool would compete with their threads.
cv2.setNumThreads(1)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The steps from an upright image to the stored one: cut a window out, scale it, lay it on a canvas.

    Attributes:
        window: y, x, height, width in the image (pixels). y and x are even, so the cut runs between chroma
            samples of 4:2:0.
        scaled: height, width of the window after scaling (pixels).
        canvas: height, width of the stored image (pixels).
        offset: y, x of the scaled window on the canvas (pixels), both even.
    """

    window: tuple[int, int, int, int]
    scaled: tuple[int, int]
    canvas: tuple[int, int]
    offset: tuple[int, int]

    def keeps_all_of(self, height: int, width: int) -> bool:
        """Tell whether nothing of a picture of this size is cut off, and nothing is put around it."""
        return self.window == (0, 0, height, width) and self.canvas == self.scaled


def geometry(height: int, width: int, sizing: Sizing) -> Geometry:
    """Return the steps from an upright image of this size to the stored one.

    Without ``upscale`` nothing is enlarged: "pad" and "crop" lay a smaller image on the canvas unscaled.
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
    """Return height and width after scaling the shorter side down to ``short_side``, without enlarging."""
    return geometry(height, width, Sizing("short", short_side, short_side)).scaled


def resize_short_side(pixels: Pixels, short_side: int) -> Pixels:
    """Shrink an image until its shorter side is ``short_side``, by area averaging, which cannot alias.

    Args:
        pixels: uint8 [H, W, C].
        short_side: pixels; smaller images are returned unchanged.

    Returns:
        uint8 [h, w, C].
    """
    return resize(pixels, short_side_size(pixels.shape[0], pixels.shape[1], short_side))


def resize(image: Pixels, size: tuple[int, int], resample: Resample = "area") -> Pixels:
    """Scale an image or a plane.

    Args:
        image: uint8 [H, W] or [H, W, C].
        size: new height and width (pixels).
        resample: "area" averages over the area that a new pixel covers, and interpolates linearly along sides
            that grow. "lanczos" is the filter of three lobes, widened by the ratio along sides that shrink.

    Returns:
        uint8 [h, w] or [h, w, C]; the image itself if it has that size.
    """
    if image.shape[:2] == size:
        return image
    scaled = _area(image, size) if resample == "area" else _lanczos(image, size)
    return scaled.reshape(*size, *image.shape[2:])


def _area(image: Pixels, size: tuple[int, int]) -> Pixels:
    # OpenCV's INTER_AREA averages only if neither side grows. Else it repeats pixels.
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
