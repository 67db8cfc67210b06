"""Random windows and flips: what chance decides for each example. Pure functions, numpy only.

Every draw is a function of (seed, epoch, position), so a repeat of a record differs and a resumed run does
not. Only the windows are computed here; the pixels are cut and resized where they are decoded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from training.config import AugmentSettings
from training.order.hashing import U64, key_of, uniform

Sizes = npt.NDArray[np.integer]
Windows = npt.NDArray[np.int32]  # [B, 4]: y, x, height, width (pixels)

_AUGMENT = 5  # keeps these keys apart from those of training.order
_TRIES = 10
_AREA, _RATIO, _TOP, _LEFT, _FLIP = 0, 100, 200, 300, 400


def keys_at(seed: int, epoch: int, positions: npt.NDArray[np.int64]) -> U64:
    """The keys that all draws for the examples at ``positions`` derive from: uint64 [B]."""
    return key_of(_AUGMENT, seed, epoch, positions)


def windows(heights: Sizes, widths: Sizes, keys: U64, settings: AugmentSettings) -> Windows:
    """The window of each training example: random, or the central square."""
    if not settings.random_resized_crop:
        return central_windows(heights, widths)
    return random_windows(heights, widths, keys, settings.scale, settings.ratio)


def flips(keys: U64, settings: AugmentSettings) -> npt.NDArray[np.bool_]:
    """Which examples are mirrored: bool [B]."""
    if not settings.horizontal_flip:
        return np.zeros(keys.shape, np.bool_)
    return uniform(keys, _FLIP) < 0.5


def central_windows(heights: Sizes, widths: Sizes) -> Windows:
    """The largest central square of each image: int32 [B, 4]."""
    side = np.minimum(heights, widths)
    return np.stack([(heights - side) // 2, (widths - side) // 2, side, side], axis=1).astype(np.int32)


def random_windows(
    heights: Sizes, widths: Sizes, keys: U64, scale: tuple[float, float], ratio: tuple[float, float]
) -> Windows:
    """Windows of random area, aspect and place (Szegedy et al.: Going deeper with convolutions, 2015).

    The area is uniform in ``scale`` of the image's, the logarithm of width / height uniform in that of
    ``ratio``. The first of ten tries that fits the image counts; where none does, the central window of the
    nearest ratio.

    Returns:
        int32 [B, 4].
    """
    tries = np.arange(_TRIES)
    area = heights.astype(np.float64) * widths
    wanted = area * (scale[0] + (scale[1] - scale[0]) * _draws(keys, _AREA, tries))
    low, high = np.log(ratio[0]), np.log(ratio[1])
    aspect = np.exp(low + (high - low) * _draws(keys, _RATIO, tries))
    height = np.rint(np.sqrt(wanted / aspect)).astype(np.int64)
    width = np.rint(np.sqrt(wanted * aspect)).astype(np.int64)
    fits = (height >= 1) & (width >= 1) & (height <= heights) & (width <= widths)  # [10, B]
    chosen, column = fits.argmax(axis=0), np.arange(keys.size)
    height, width = height[chosen, column], width[chosen, column]
    none_fits = ~fits.any(axis=0)
    if none_fits.any():
        central = _nearest_ratio(heights[none_fits], widths[none_fits], ratio)
        height[none_fits], width[none_fits] = central
    top = _place(uniform(keys, _TOP), heights - height)
    left = _place(uniform(keys, _LEFT), widths - width)
    top[none_fits] = (heights[none_fits] - height[none_fits]) // 2
    left[none_fits] = (widths[none_fits] - width[none_fits]) // 2
    return np.stack([top, left, height, width], axis=1).astype(np.int32)


def _draws(keys: U64, stream: int, tries: npt.NDArray[np.int_]) -> npt.NDArray[np.float64]:
    """float64 [10, B]: one draw for each try and key."""
    return np.stack([uniform(keys, stream + int(number)) for number in tries])


def _place(draw: npt.NDArray[np.float64], room: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A whole number of [0, room] for each draw of [0, 1)."""
    return (draw * (room + 1)).astype(np.int64)


def _nearest_ratio(
    heights: Sizes, widths: Sizes, ratio: tuple[float, float]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(heights, widths) of the largest windows whose aspect is clipped to ``ratio``."""
    aspect = np.clip(widths / heights, *ratio)
    height = np.minimum(heights, np.rint(widths / aspect)).astype(np.int64)
    width = np.minimum(widths, np.rint(heights * aspect)).astype(np.int64)
    return np.maximum(height, 1), np.maximum(width, 1)
