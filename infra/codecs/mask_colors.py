"""Show masks to people: a color for each class, laid over the image.

The colors are those of Pascal VOC (Everingham et al. 2010) without the first one, black: the bits of a
number, three at a time from the lowest, become the highest bits of red, green and blue. So neighbouring
numbers differ most, and a class has the same color in every picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.codecs.masks import scale_mask

_BITS = 8
_SHARE = 0.55  # share of the color in a pixel that has a class


def class_colors(num_classes: int) -> Pixels:
    """Return the color of each class: uint8 [C, 3]. Of more than 255 classes some have the same color."""
    numbers = np.arange(num_classes) % ((1 << _BITS) - 1) + 1
    colors = np.zeros((num_classes, 3), np.uint8)
    for bit in range(_BITS):
        for channel in range(3):
            colors[:, channel] |= ((numbers >> channel & 1) << (_BITS - 1 - bit)).astype(np.uint8)
        numbers >>= 3
    return colors


def legend(classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the name and the color (#rrggbb) of each class."""
    colors = class_colors(len(classes)).tolist()
    return [
        (name, f"#{red:02x}{green:02x}{blue:02x}")
        for name, (red, green, blue) in zip(classes, colors, strict=True)
    ]


def lay_over(pixels: Pixels, mask: npt.NDArray[Any], num_classes: int) -> Pixels:
    """Scale a mask to its image, and lay the colors of its classes over the image.

    Args:
        pixels: uint8 [H, W, 1 or 3].
        mask: integers [h, w], the class of each pixel; a pixel with a number behind the last class is not
            colored.
        num_classes: the number of classes.

    Returns:
        uint8 [H, W, 3].
    """
    base = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    numbers = scale_mask(mask, pixels.shape[:2])
    has_class = (numbers < num_classes)[:, :, np.newaxis]
    colors = class_colors(num_classes)[np.minimum(numbers, num_classes - 1)]
    mixed = np.rint(_SHARE * colors + (1 - _SHARE) * base).astype(np.uint8)
    return np.where(has_class, mixed, base)
