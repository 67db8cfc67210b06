"""Single images in every form that the codecs' tests need."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from infra.codecs import Pixels


def gradient(height: int = 48, width: int = 64) -> Pixels:
    """uint8 [H, W, 3]: a gradient with one dark corner, so that every orientation looks different."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = (255 * x / width, 255 * y / height, 255 * (x + y) / (width + height))
    pixels = np.stack(planes, axis=-1).astype(np.uint8)
    pixels[: height // 4, : width // 4] = 10
    return pixels


def saved(image: Image.Image, format_: str, **options: Any) -> bytes:
    """The file that Pillow writes."""
    stream = io.BytesIO()
    image.save(stream, format_, **options)
    return stream.getvalue()
