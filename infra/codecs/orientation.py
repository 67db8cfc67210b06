"""Turn pixels upright by their EXIF orientation."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Sample = TypeVar("Sample", bound=np.generic)


def apply_orientation(pixels: npt.NDArray[Sample], orientation: int) -> npt.NDArray[Sample]:
    """Turn pixels upright (EXIF 2.32, tag 274).

    Args:
        pixels: [H, W, C] as stored.
        orientation: 1 to 8.

    Returns:
        [H, W, C], or [W, H, C] for 5 to 8.
    """
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
