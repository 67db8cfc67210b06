"""Random erasing: cover a box of an example (Zhong et al.: Random erasing data augmentation, 2020).

The annotation stays: an object that is partly covered keeps its box, as in that paper.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from shardmill.infra.preparation import SampleKind
from shardmill.infra.settings import Settings
from shardmill.infra.splitmix import U64, splitmix64
from shardmill.training.augment.kind import Array, Arrays, ImageAugmentation, cv2
from shardmill.training.augment.windows import check_ranges, random_boxes
from shardmill.training.draws import Purpose, key_of, uniform

ErasingFill = Literal["mean", "black", "noise"]
_IS_ERASED = 700  # stream; boxes and noise have keys of their own


class ErasingSettings(Settings):
    """Random erasing: a box of the example is covered."""

    probability: float = Field(default=0.0, ge=0, le=1, description="share of the examples that lose a box")
    scale: tuple[float, float] = Field(
        default=(0.02, 0.33), description="smallest and largest share of the example's area"
    )
    ratio: tuple[float, float] = Field(default=(0.3, 3.3), description="narrowest and widest aspect ratio")
    fill: ErasingFill = Field(
        default="mean", description="content of the box: the example's mean colour, black, or noise"
    )

    @model_validator(mode="after")
    def _box_ranges(self) -> Self:
        check_ranges(self.scale, self.ratio)
        return self


class _Fields(Settings):
    erasing: ErasingSettings = Field(default_factory=ErasingSettings, description="covering a part")


class Erasing(ImageAugmentation[_Fields]):
    """Covers a box of images.

    Draws ``boxes``, int32 [B, 4]: y, x, height, width in the image that is made (pixels); height 0 covers
    nothing; and ``noise``, uint64 [B], the key of a noisy filling.
    """

    Fields = _Fields
    turn = 40
    streams = range(_IS_ERASED, _IS_ERASED + 1)
    objects_follow = True
    name = "augment.erasing"

    @property
    def is_on(self) -> bool:
        """Whether any example loses a box."""
        return self.settings.erasing.probability > 0

    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw the boxes of a batch."""
        erasing, sides = self.settings.erasing, np.full(keys.shape, image_size)
        boxes = random_boxes(sides, sides, key_of(Purpose.ERASING_BOX, keys), erasing.scale, erasing.ratio)
        boxes[uniform(keys, _IS_ERASED) >= erasing.probability] = 0
        return {"boxes": boxes, "noise": key_of(Purpose.ERASING_NOISE, keys)}

    def unfit(self, samples: SampleKind) -> str:
        """Return the setting of noise for float32, which has no range of values."""
        is_noisy = self.settings.erasing.fill == "noise"
        return "augment.erasing.fill = 'noise'" if is_noisy and samples.white is None else ""

    def apply(self, image: Array, drawn: Arrays, row: int) -> None:
        """Cover the box of an image."""
        top, left, height, width = drawn["boxes"][row].tolist()
        if not height:
            return
        fill = self.settings.erasing.fill
        box = image[top : top + height, left : left + width]
        if fill == "noise":
            box[...] = noise(drawn["noise"][row : row + 1], height, width, image.shape[2], image.dtype)
        elif image.dtype != np.uint8 or image.shape[2] != 3:
            box[...] = _mean(image) if fill == "mean" else 0
        else:
            color = np.rint(cv2.mean(image)[:3]).tolist() if fill == "mean" else (0, 0, 0)
            cv2.rectangle(image, (left, top, width, height), color, cv2.FILLED)


def _mean(image: Array) -> Array:
    """Return the mean of each channel over what is finite, 0 where nothing is: [C] of the image's type."""
    if image.dtype != np.float32:
        rounded: Array = np.rint(image.mean((0, 1), np.float64)).astype(image.dtype)
        return rounded
    finite = np.isfinite(image)
    total = image.sum((0, 1), np.float64, where=finite)
    mean: Array = (total / np.maximum(finite.sum((0, 1)), 1)).astype(np.float32)
    return mean


def noise(key: U64, height: int, width: int, channels: int = 3, dtype: npt.DTypeLike = np.uint8) -> Array:
    """Return noise, the same for the same key: [height, width, channels].

    Args:
        key: uint64 [1].
        height: height of the box (pixels).
        width: width of the box (pixels).
        channels: channels of the image.
        dtype: its type, unsigned; the noise has all its values.
    """
    num_bytes = height * width * channels * np.dtype(dtype).itemsize
    counters = np.arange(-(-num_bytes // 8), dtype=np.uint64)
    counters += key
    words = splitmix64(counters)
    found = words.astype("<u8").view(np.uint8)[:num_bytes].view(np.dtype(dtype).newbyteorder("<"))
    return found.astype(dtype, copy=False).reshape(height, width, channels)
