"""Turn pixels upright by their EXIF orientation."""

from __future__ import annotations

import numpy as np

from infra.codecs.formats import Pixels


def apply_orientation(pixels: Pixels, orientation: int) -> Pixels:
    """Turn pixels upright (EXIF 2.32, tag 274).

    Args:
        pixels: uint8 [H, W, C] as stored.
        orientation: 1 to 8.

    Returns:
        uint8 [H, W, C], or [W, H, C] for 5 to 8.
    """
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
