"""Random erasing: cover a box of an example (Zhong et al.: Random erasing data augmentation, 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardmill.infra.splitmix import U64, splitmix64
from shardmill.training.augment.windows import Windows, random_boxes
from shardmill.training.config.augment import ErasingFill, ErasingSettings
from shardmill.training.order.random_numbers import key_of, uniform
from shardmill.training.order.streams import ImageStream, Purpose


@dataclass(frozen=True, slots=True)
class ErasingParameters:
    """The box that erasing covers in each image, and its filling.

    Attributes:
        boxes: int32 [B, 4]: y, x, height, width in the image that is made (pixels); height 0 covers nothing.
        fill: the mean colour of the image, black, or noise.
        keys: uint64 [B], of the noise.
    """

    boxes: Windows
    fill: ErasingFill
    keys: U64


def erasing_parameters(keys: U64, settings: ErasingSettings, image_size: int) -> ErasingParameters | None:
    """Draw the boxes of a batch; None if erasing is off."""
    if not settings.probability:
        return None
    sides = np.full(keys.shape, image_size)
    boxes = random_boxes(sides, sides, key_of(Purpose.ERASING_BOX, keys), settings.scale, settings.ratio)
    boxes[uniform(keys, ImageStream.ERASING) >= settings.probability] = 0
    return ErasingParameters(boxes, settings.fill, key_of(Purpose.ERASING_NOISE, keys))


def noise(key: U64, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return noise, the same for the same key: uint8 [height, width, 3].

    Args:
        key: uint64 [1].
        height: height of the box (pixels).
        width: width of the box (pixels).
    """
    num_bytes = height * width * 3
    counters = np.arange(-(-num_bytes // 8), dtype=np.uint64)
    counters += key
    words = splitmix64(counters)
    return words.astype("<u8").view(np.uint8)[:num_bytes].reshape(height, width, 3)
