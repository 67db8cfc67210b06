"""A picture as pixels: cut, scaled and laid on a canvas."""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np

from infra.codecs.formats import Pixels
from infra.codecs.resize import Geometry, Resample, resize


def fit_pixels(pixels: Pixels, to: Geometry, resample: Resample, background: tuple[int, int, int]) -> Pixels:
    """Cut, scale and lay a picture on its canvas.

    Args:
        pixels: uint8 [H, W, 1 or 3], upright.
        background: red, green, blue of what is left of the canvas.

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
    """uint8 [H, W, 1 or 3] to uint8 [H, W] (ITU-R BT.601)."""
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    return cast(Pixels, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))
