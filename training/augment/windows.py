"""The windows of stored images: without augmentation, and drawn at random. Pure functions, numpy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardmill.infra.settings import WrongValue
from shardmill.infra.splitmix import U64
from shardmill.training.augment.kind import Sizes, Windows
from shardmill.training.draws import uniform
from shardmill.training.models.spec import Fit

_TRIES = 10
# Streams under the key of an image. Each of the first two takes ten numbers, one for each try.
_AREA, _ASPECT_RATIO, _TOP, _LEFT = 0, 100, 200, 300
WINDOW_STREAMS = range(_AREA, _LEFT + 1)


def central_windows(heights: Sizes, widths: Sizes) -> Windows:
    """Return the largest central square of each image: int32 [B, 4]."""
    side = np.minimum(heights, widths)
    return np.stack([(heights - side) // 2, (widths - side) // 2, side, side], axis=1).astype(np.int32)


def whole_windows(heights: Sizes, widths: Sizes) -> Windows:
    """Return the window of each image that shows all of it: int32 [B, 4]."""
    none = np.zeros_like(heights)
    return np.stack([none, none, heights, widths], axis=1).astype(np.int32)


def fixed_windows(heights: Sizes, widths: Sizes, fit: Fit) -> Windows:
    """Return the window of each image that is seen without augmentation: int32 [B, 4]."""
    return whole_windows(heights, widths) if fit == "stretch" else central_windows(heights, widths)


def random_windows(
    heights: Sizes, widths: Sizes, keys: U64, scale: tuple[float, float], ratio: tuple[float, float]
) -> Windows:
    """Draw windows of random area, aspect and place (Szegedy et al.: Going deeper with convolutions, 2015).

    The area is uniform in ``scale`` of the image's, the logarithm of width / height uniform in that of
    ``ratio``. The first of ten tries that fits the image counts; where none does, the central window of the
    nearest ratio.

    Returns:
        int32 [B, 4].
    """
    height, width, none_fits = _sizes(heights, widths, keys, scale, ratio)
    if none_fits.any():
        central = _nearest_ratio(heights[none_fits], widths[none_fits], ratio)
        height[none_fits], width[none_fits] = central
    found = _placed(heights, widths, height, width, keys)
    found[none_fits, 0] = (heights[none_fits] - height[none_fits]) // 2
    found[none_fits, 1] = (widths[none_fits] - width[none_fits]) // 2
    return found


def random_boxes(
    heights: Sizes, widths: Sizes, keys: U64, scale: tuple[float, float], ratio: tuple[float, float]
) -> Windows:
    """Draw windows like ``random_windows``; if no try fits, height and width are 0.

    Returns:
        int32 [B, 4].
    """
    height, width, none_fits = _sizes(heights, widths, keys, scale, ratio)
    height[none_fits] = width[none_fits] = 0
    return _placed(heights, widths, height, width, keys)


def _sizes(
    heights: Sizes, widths: Sizes, keys: U64, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return (heights, widths) of the first tries that fit, and where none did: [B] each."""
    tries = np.arange(_TRIES)
    area = heights.astype(np.float64) * widths
    wanted = area * (scale[0] + (scale[1] - scale[0]) * _draws(keys, _AREA, tries))
    low, high = np.log(ratio[0]), np.log(ratio[1])
    aspect = np.exp(low + (high - low) * _draws(keys, _ASPECT_RATIO, tries))
    height = np.rint(np.sqrt(wanted / aspect)).astype(np.int64)
    width = np.rint(np.sqrt(wanted * aspect)).astype(np.int64)
    fits = (height >= 1) & (width >= 1) & (height <= heights) & (width <= widths)  # [10, B]
    chosen, column = fits.argmax(axis=0), np.arange(keys.size)
    return height[chosen, column], width[chosen, column], ~fits.any(axis=0)


def _placed(
    heights: Sizes, widths: Sizes, height: npt.NDArray[np.int64], width: npt.NDArray[np.int64], keys: U64
) -> Windows:
    """Place windows of these sizes at random: int32 [B, 4]."""
    top = _place(uniform(keys, _TOP), heights - height)
    left = _place(uniform(keys, _LEFT), widths - width)
    return np.stack([top, left, height, width], axis=1).astype(np.int32)


def _draws(keys: U64, stream: int, tries: npt.NDArray[np.int_]) -> npt.NDArray[np.float64]:
    """Draw a number for each try and key: float64 [10, B]."""
    return np.stack([uniform(keys, stream + int(number)) for number in tries])


def _place(draw: npt.NDArray[np.float64], room: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a whole number of [0, room] for each draw of [0, 1)."""
    return (draw * (room + 1)).astype(np.int64)


def _nearest_ratio(
    heights: Sizes, widths: Sizes, ratio: tuple[float, float]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (heights, widths) of the largest windows with an aspect clipped to ``ratio``."""
    aspect = np.clip(widths / heights, *ratio)
    height = np.minimum(heights, np.rint(widths / aspect)).astype(np.int64)
    width = np.minimum(widths, np.rint(heights * aspect)).astype(np.int64)
    return np.maximum(height, 1), np.maximum(width, 1)


def check_ranges(scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    """Check the ranges of area and aspect of random windows.

    Raises:
        ValueError: one of them is no range.
    """
    if not 0 < scale[0] <= scale[1] <= 1:
        raise WrongValue(f"scale = {scale}", "give two numbers above 0 and at most 1, smaller first")
    if not 0 < ratio[0] <= ratio[1]:
        raise WrongValue(f"ratio = {ratio}", "give two positive numbers, smaller first")
