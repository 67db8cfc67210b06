"""Pixels to the encoded form that shards hold."""

from __future__ import annotations

from typing import cast

import numpy as np
import simplejpeg

from infra.codecs.formats import ImageRejected, Pixels

MAX_JPEG_SIDE = 65_500  # libjpeg's own limit; the format's is 65,535


def encode_jpeg(pixels: Pixels, quality: int) -> bytes:
    """Baseline JPEG, 4:2:0 for colour. ``pixels``: uint8 [H, W, 1 or 3]; ``quality`` 1 to 100.

    Raises:
        ImageRejected: a side is longer than JPEG can hold.
    """
    height, width = pixels.shape[:2]
    if max(height, width) > MAX_JPEG_SIDE:
        raise ImageRejected(
            "too_long", f"stored as {width}×{height}; a JPEG has at most {MAX_JPEG_SIDE:,} pixels a side"
        )
    grey = pixels.shape[2] == 1
    return cast(
        bytes,
        simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels),
            quality=quality,
            colorspace="GRAY" if grey else "RGB",
            colorsubsampling="Gray" if grey else "420",
        ),
    )
