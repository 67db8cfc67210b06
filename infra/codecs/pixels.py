"""Cut and scale pixels, and lay them on a canvas."""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.codecs.resize import Geometry, resize
from shardmill.infra.preparation import Resample


def fit_pixels(pixels: Pixels, to: Geometry, resample: Resample, background: tuple[int, int, int]) -> Pixels:
    """Cut and scale a picture, and lay it on its canvas.

    Args:
        pixels: uint8 [H, W, 1 or 3], upright.
        to: window, scale and place on the canvas.
        resample: the filter.
        background: red, green and blue of the canvas around the picture.

    Returns:
        uint8 [h, w, C].
    """
    top, left, height, width = to.window
    scaled = resize(pixels[top : top + height, left : left + width], to.scaled, resample)
    if to.canvas == to.scaled:
        return scaled
    colour = np.array([[background]], np.uint8)
    whole = np.empty((*to.canvas, pixels.shape[2]), np.uint8)
    whole[:] = colour if pixels.shape[2] == 3 else luma(colour)[:, :, np.newaxis]
    top, left = to.offset
    whole[top : top + to.scaled[0], left : left + to.scaled[1]] = scaled
    return whole


def luma(pixels: Pixels) -> Pixels:
    """Return the luma (ITU-R BT.601), uint8 [H, W], of pixels, uint8 [H, W, 1 or 3]."""
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    return cast(Pixels, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))
