"""Draw the parameters of augmentation for each example of a batch. Pure functions, numpy only.

Every random number is a function of (seed, epoch, position). So a repeated record looks different, and a
resumed run sees the same. Windows are cut where images are decoded; ``pixels.augment_image`` does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardmill.infra.splitmix import U64
from shardmill.training.augment.color import ColorParameters, color_parameters
from shardmill.training.augment.erasing import ErasingParameters, erasing_parameters
from shardmill.training.augment.windows import Sizes, Windows, fixed_windows, random_windows
from shardmill.training.config import AugmentSettings
from shardmill.training.models.spec import Fit
from shardmill.training.order.random_numbers import key_of, uniform
from shardmill.training.order.streams import ImageStream, Purpose


@dataclass(frozen=True, slots=True)
class AugmentParameters:
    """The parameters of augmentation for the images of a batch.

    Attributes:
        windows: int32 [B, 4]: y, x, height, width of the visible part of the stored image (pixels).
        flip_left_right, flip_top_bottom: bool [B].
        color: the parameters of colour jitter; None: there is none.
        erasing: the parameters of random erasing; None: there is none.
    """

    windows: Windows
    flip_left_right: npt.NDArray[np.bool_]
    flip_top_bottom: npt.NDArray[np.bool_]
    color: ColorParameters | None = None
    erasing: ErasingParameters | None = None


def draw_parameters(
    settings: AugmentSettings | None,
    seed: int,
    epoch: int,
    positions: npt.NDArray[np.int64],
    heights: Sizes,
    widths: Sizes,
    image_size: int,
    fit: Fit = "crop",
) -> AugmentParameters:
    """Draw the parameters of the examples at ``positions`` of an epoch.

    Args:
        settings: how examples are augmented; None: only as ``fit`` says.
        seed: the seed of the run.
        epoch: the epoch.
        positions: int64 [B] within the epoch.
        heights: heights of the stored images, [B] (pixels).
        widths: widths of the stored images, [B] (pixels).
        image_size: height and width of the images that are made (pixels).
        fit: what is seen of an image without a random window.
    """
    keys = keys_at(seed, epoch, positions)
    if settings is None:
        never = np.zeros(keys.shape, np.bool_)
        return AugmentParameters(fixed_windows(heights, widths, fit), never, never)
    return AugmentParameters(
        windows(heights, widths, keys, settings, fit),
        flips(keys, settings),
        vertical_flips(keys, settings),
        color_parameters(keys, settings.color_jitter),
        erasing_parameters(keys, settings.erasing, image_size),
    )


def keys_at(seed: int, epoch: int, positions: npt.NDArray[np.int64]) -> U64:
    """Return the keys from which everything is drawn for the examples at ``positions``: uint64 [B]."""
    return key_of(Purpose.IMAGE, seed, epoch, positions)


def windows(
    heights: Sizes, widths: Sizes, keys: U64, settings: AugmentSettings, fit: Fit = "crop"
) -> Windows:
    """Draw the window of each training example, or return that of ``fit``."""
    if not settings.random_resized_crop:
        return fixed_windows(heights, widths, fit)
    return random_windows(heights, widths, keys, settings.scale, settings.ratio)


def flips(keys: U64, settings: AugmentSettings) -> npt.NDArray[np.bool_]:
    """Draw which examples are mirrored from left to right: bool [B]."""
    return _every_other(keys, ImageStream.FLIP_LEFT_RIGHT, settings.horizontal_flip)


def vertical_flips(keys: U64, settings: AugmentSettings) -> npt.NDArray[np.bool_]:
    """Draw which examples are mirrored from top to bottom: bool [B]."""
    return _every_other(keys, ImageStream.FLIP_TOP_BOTTOM, settings.vertical_flip)


def _every_other(keys: U64, stream: int, wanted: bool) -> npt.NDArray[np.bool_]:
    if not wanted:
        return np.zeros(keys.shape, np.bool_)
    return uniform(keys, stream) < 0.5
