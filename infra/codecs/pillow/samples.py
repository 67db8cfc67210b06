"""The samples of a loaded image as the file has them: values of a mask, not shades of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.pillow.raster import DEEP

AnyPixels = npt.NDArray[Any]

_OPAQUE = 255


def samples_of(image: Image.Image, bits: int, in_color: bool) -> AnyPixels:
    """Return the samples of an image: of a palette the indexes, of one bit 0 and 1.

    Args:
        image: loaded.
        bits: bits of a sample in the file.
        in_color: return the colours of all images instead.

    Returns:
        uint8 or uint16 [H, W, 1], or uint8 [H, W, 3] of an image in colour.

    Raises:
        ImageRejected: the samples are no such numbers ("unsupported").
    """
    if in_color and image.mode in ("1", "L", "P"):
        image, bits = image.convert("RGB"), 8
    if image.mode in ("RGB", "RGBA", "RGBX"):
        return _colors(image, bits)
    if image.mode == "LA":
        _check_opaque(image)
        return np.asarray(image)[:, :, :1]
    return _numbers(image, bits)[:, :, np.newaxis]


def _numbers(image: Image.Image, bits: int) -> AnyPixels:
    samples = np.asarray(image)
    if image.mode in ("1", "P"):
        return samples.astype(np.uint8)
    if image.mode == "L":
        # Pillow scales samples of 2 and 4 bits to 8.
        return samples // np.uint8(255 // ((1 << bits) - 1)) if bits in (2, 4) else samples
    if image.mode == DEEP:
        return samples.astype(np.uint16)
    raise ImageRejected("unsupported", f"its pixels are neither whole numbers nor RGB (mode {image.mode})")


def _colors(image: Image.Image, bits: int) -> AnyPixels:
    if bits > 8:
        raise ImageRejected("unsupported", f"colours of {bits} bits; 8 bits are read")
    if image.mode == "RGBA":
        _check_opaque(image)
    return np.ascontiguousarray(np.asarray(image)[:, :, :3])


def _check_opaque(image: Image.Image) -> None:
    low, _ = image.getchannel("A").getextrema()
    if low != _OPAQUE:
        raise ImageRejected("unsupported", "it has transparent pixels, which have no certain class")
