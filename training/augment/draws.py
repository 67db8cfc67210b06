"""What chance decides for each example of a batch. Pure functions, numpy only.

Every draw is a function of (seed, epoch, position), so a repeat of a record differs and a resumed run does
not. Windows are cut where images are decoded; what comes after is ``pixels.vary``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from infra.splitmix import U64
from training.augment.color import ColorDraws, color_draws
from training.augment.erasing import ErasingDraws, erasing_draws
from training.augment.windows import Sizes, Windows, central_windows, random_windows
from training.config import AugmentSettings
from training.order.hashing import key_of, uniform

_AUGMENT = 5  # keeps these keys apart from those of training.order
_LEFT_RIGHT, _TOP_BOTTOM = 400, 401


@dataclass(frozen=True, slots=True)
class Draws:
    """What is to be done with the images of a batch.

    Attributes:
        windows: int32 [B, 4]: y, x, height, width of what is seen of the stored image (pixels).
        flip_left_right, flip_top_bottom: bool [B].
        color: of the colour jitter, None where there is none.
        erasing: of random erasing, None where there is none.
    """

    windows: Windows
    flip_left_right: npt.NDArray[np.bool_]
    flip_top_bottom: npt.NDArray[np.bool_]
    color: ColorDraws | None = None
    erasing: ErasingDraws | None = None


def draw(
    settings: AugmentSettings | None,
    seed: int,
    epoch: int,
    positions: npt.NDArray[np.int64],
    heights: Sizes,
    widths: Sizes,
    image_size: int,
) -> Draws:
    """The draws of the examples at ``positions`` of an epoch.

    Args:
        settings: how examples are varied; None: the central square, and nothing else.
        seed: of the run.
        epoch: which pass.
        positions: int64 [B] within the epoch.
        heights, widths: of the stored images, [B] (pixels).
        image_size: height and width of the images that are made (pixels).
    """
    keys = keys_at(seed, epoch, positions)
    if settings is None:
        never = np.zeros(keys.shape, np.bool_)
        return Draws(central_windows(heights, widths), never, never)
    return Draws(
        windows(heights, widths, keys, settings),
        flips(keys, settings),
        vertical_flips(keys, settings),
        color_draws(keys, settings.color_jitter),
        erasing_draws(keys, settings.erasing, image_size),
    )


def keys_at(seed: int, epoch: int, positions: npt.NDArray[np.int64]) -> U64:
    """The keys that all draws for the examples at ``positions`` derive from: uint64 [B]."""
    return key_of(_AUGMENT, seed, epoch, positions)


def windows(heights: Sizes, widths: Sizes, keys: U64, settings: AugmentSettings) -> Windows:
    """The window of each training example: random, or the central square."""
    if not settings.random_resized_crop:
        return central_windows(heights, widths)
    return random_windows(heights, widths, keys, settings.scale, settings.ratio)


def flips(keys: U64, settings: AugmentSettings) -> npt.NDArray[np.bool_]:
    """Which examples are mirrored, left to right: bool [B]."""
    return _every_other(keys, _LEFT_RIGHT, settings.horizontal_flip)


def vertical_flips(keys: U64, settings: AugmentSettings) -> npt.NDArray[np.bool_]:
    """Which examples are turned over, top to bottom: bool [B]."""
    return _every_other(keys, _TOP_BOTTOM, settings.vertical_flip)


def _every_other(keys: U64, stream: int, wanted: bool) -> npt.NDArray[np.bool_]:
    if not wanted:
        return np.zeros(keys.shape, np.bool_)
    return uniform(keys, stream) < 0.5
