"""Image bytes to arrays and back: the bindings of the image libraries, used by both floors above.

JPEG goes through libjpeg-turbo, everything else through Pillow, area averaging through OpenCV. All of them
release the GIL. Formats are recognised by content, never by name.
"""

from __future__ import annotations

import cv2
import PIL
import simplejpeg

from infra.codecs.encode import MAX_JPEG_SIDE, encode_jpeg
from infra.codecs.formats import MAX_PIXELS, DecodedImage, ImageRejected, Pixels, sniff
from infra.codecs.jpeg import decode_jpeg
from infra.codecs.orientation import apply_orientation
from infra.codecs.pillow import PILLOW_FORMATS, decode_with_pillow
from infra.codecs.resize import resize_short_side, short_side_size

__all__ = [
    "MAX_JPEG_SIDE",
    "MAX_PIXELS",
    "DecodedImage",
    "ImageRejected",
    "Pixels",
    "apply_orientation",
    "codec_builds",
    "decode",
    "encode_jpeg",
    "resize_short_side",
    "short_side_size",
    "sniff",
]

# Raised with every change here, or in what calls this, that makes other pixels of the same file: work that
# was finished under the old code is then not mixed with new.
REVISION = 1


def codec_builds() -> dict[str, str]:
    """Library -> version of everything that shapes stored pixels. Part of every digest."""
    return {
        "shardmill": str(REVISION),
        "simplejpeg": simplejpeg.__version__,
        "opencv": cv2.__version__,
        "pillow": PIL.__version__,
    }


def decode(data: bytes, channels: int = 3, *, max_pixels: int = MAX_PIXELS) -> DecodedImage:
    """Decode an image of any known format, upright, as grey or RGB.

    Args:
        data: the file's bytes.
        channels: 1 or 3.
        max_pixels: refuse larger images by their header, before anything is decoded.

    Raises:
        ImageRejected: the bytes are no whole image.
    """
    if not data:
        raise ImageRejected("empty", "the file is empty (0 bytes)")
    found = sniff(data)
    if found is None:
        known = ", ".join(dict.fromkeys(PILLOW_FORMATS.values()))
        raise ImageRejected(
            "unknown_format", f"begins with the bytes {data[:4].hex(' ').upper()}, which is none of {known}"
        )
    if found == "jpeg" and (image := decode_jpeg(data, channels, max_pixels)) is not None:
        return image
    return decode_with_pillow(data, found, channels, max_pixels)
