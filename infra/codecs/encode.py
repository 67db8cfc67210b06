"""Encode pixels to the form that shards hold.

The raw form is the pixels themselves: uint8 [height, width, channels], rows from the top.
"""

from __future__ import annotations

import io
from typing import cast

import numpy as np
import simplejpeg
from PIL import Image

from shardmill.infra.codecs.formats import ImageRejected, Pixels
from shardmill.infra.preparation import Encoding

MAX_JPEG_SIDE = 65_500  # libjpeg's own limit; the format's is 65,535
MAX_WEBP_SIDE = 16_383

_LONGEST = {"jpeg": ("a JPEG", MAX_JPEG_SIDE), "webp": ("a WebP", MAX_WEBP_SIDE)}
# zlib's own default: level 9 takes twice the time for 1 % on photographs.
_PNG_LEVEL = 6
# libwebp's own default, from 0 (fast) to 6 (small).
_WEBP_METHOD = 4


def check_storable(height: int, width: int, encoding: Encoding, max_pixels: int) -> None:
    """Refuse a size that cannot be stored, before memory is taken for it.

    Args:
        height: rows of the stored image (pixels).
        width: columns of the stored image (pixels).
        encoding: some encodings have a longest side.
        max_pixels: largest image that is stored.

    Raises:
        ImageRejected: "too_long" or "too_many_pixels".
    """
    name, longest = _LONGEST.get(encoding, ("", 0))
    if name and max(height, width) > longest:
        raise ImageRejected(
            "too_long", f"stored as {width}×{height}; {name} has at most {longest:,} pixels a side"
        )
    if height * width > max_pixels:
        raise ImageRejected(
            "too_many_pixels", f"stored as {width}×{height}; at most {max_pixels:,} pixels are allowed"
        )


def encode(pixels: Pixels, encoding: Encoding, quality: int) -> bytes:
    """Encode an image.

    Args:
        pixels: uint8 [H, W, 1 or 3]. WebP has no grey, so it holds a grey picture as three equal channels.
        encoding: the stored form.
        quality: 1 to 100, for JPEG and WebP.

    Raises:
        ImageRejected: a side is longer than the encoding can hold.
    """
    if encoding == "jpeg":
        return encode_jpeg(pixels, quality)
    check_storable(pixels.shape[0], pixels.shape[1], encoding, pixels.size)
    if encoding == "raw":
        return pixels.tobytes()
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    sink = io.BytesIO()
    if encoding == "png":
        picture.save(sink, "PNG", compress_level=_PNG_LEVEL)
    else:
        picture.convert("RGB").save(sink, "WEBP", quality=quality, method=_WEBP_METHOD)
    return sink.getvalue()


def encode_jpeg(pixels: Pixels, quality: int) -> bytes:
    """Encode a baseline JPEG, 4:2:0 for colour.

    Args:
        pixels: uint8 [H, W, 1 or 3].
        quality: 1 to 100.

    Raises:
        ImageRejected: a side is longer than JPEG can hold.
    """
    check_storable(pixels.shape[0], pixels.shape[1], "jpeg", pixels.size)
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
