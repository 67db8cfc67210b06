"""Scaling without aliasing."""

from __future__ import annotations

from typing import cast

import cv2

from infra.codecs.formats import Pixels

# Parallelism comes from the jobs above, one image a thread; a pool in each call would only fight it.
cv2.setNumThreads(1)


def short_side_size(height: int, width: int, short_side: int) -> tuple[int, int]:
    """(height, width) after scaling the shorter side down to ``short_side``; never larger than it was."""
    shorter = min(height, width)
    if shorter <= short_side:
        return height, width
    if height <= width:
        return short_side, max(1, round(width * short_side / height))
    return max(1, round(height * short_side / width)), short_side


def resize_short_side(pixels: Pixels, short_side: int) -> Pixels:
    """Shrink so that the shorter side is ``short_side``, by area averaging (which cannot alias).

    Args:
        pixels: uint8 [H, W, C].
        short_side: pixels; smaller images stay as they are.

    Returns:
        uint8 [h, w, C].
    """
    height, width = short_side_size(pixels.shape[0], pixels.shape[1], short_side)
    if (height, width) == pixels.shape[:2]:
        return pixels
    shrunk = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return cast(Pixels, shrunk.reshape(height, width, pixels.shape[2]))
