"""EXIF orientation: reading it, and turning pixels upright."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from infra.codecs.formats import Pixels

_EXIF_ORIENTATION = 0x0112


def jpeg_orientation(data: bytes) -> int:
    """EXIF orientation of a JPEG, 1 where there is none. Skips the parser where no EXIF block is in sight."""
    if data.find(b"Exif\x00\x00", 0, 1 << 16) < 0:
        return 1
    try:
        with no_warnings(), Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            return orientation_of(image)
    except (OSError, SyntaxError, ValueError):
        return 1  # the pixels were fine; broken metadata is no reason to lose them


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Keep what Pillow remarks about odd metadata to itself: the pixels decide whether an image is sound."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def orientation_of(image: Image.Image) -> int:
    try:
        value: Any = image.getexif().get(_EXIF_ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError):
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def apply_orientation(pixels: Pixels, orientation: int) -> Pixels:
    """Turn pixels upright. EXIF 2.32, tag 274; ``pixels``: uint8 [H, W, C], or [W, H, C] for 5 to 8."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
