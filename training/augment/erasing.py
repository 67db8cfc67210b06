"""Random erasing: a box of an example is covered (Zhong et al.: Random erasing data augmentation, 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from infra.splitmix import U64, splitmix64
from training.augment.windows import Windows, random_boxes
from training.config.augment import ErasingFill, ErasingSettings
from training.order.hashing import key_of, uniform

_WHETHER = 700
_BOX, _NOISE = 6, 7  # keep these keys apart from those of the window


@dataclass(frozen=True, slots=True)
class ErasingDraws:
    """What is covered, and with what.

    Attributes:
        boxes: int32 [B, 4]: y, x, height, width in the image that is made (pixels); height 0 covers nothing.
        fill: the mean colour of the image, black, or noise.
        keys: uint64 [B], of the noise.
    """

    boxes: Windows
    fill: ErasingFill
    keys: U64


def erasing_draws(keys: U64, settings: ErasingSettings, image_size: int) -> ErasingDraws | None:
    """The boxes of a batch; None where erasing is off."""
    if not settings.probability:
        return None
    sides = np.full(keys.shape, image_size)
    boxes = random_boxes(sides, sides, key_of(_BOX, keys), settings.scale, settings.ratio)
    boxes[uniform(keys, _WHETHER) >= settings.probability] = 0
    return ErasingDraws(boxes, settings.fill, key_of(_NOISE, keys))


def noise(key: U64, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Bytes without pattern, the same for the same key: uint8 [height, width, 3].

    Args:
        key: uint64 [1].
    """
    num_bytes = height * width * 3
    counters = np.arange(-(-num_bytes // 8), dtype=np.uint64)
    counters += key
    words = splitmix64(counters)
    return words.astype("<u8").view(np.uint8)[:num_bytes].reshape(height, width, 3)
