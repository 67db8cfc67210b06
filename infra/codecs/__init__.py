"""Image bytes to arrays and back: the bindings of the image libraries, used by both floors above.

JPEG goes through libjpeg-turbo, everything else through Pillow, HEIF through libheif where it is installed,
area averaging through OpenCV. All of them release the GIL. Formats are recognised by content, never by name.
"""

from __future__ import annotations

import cv2
import PIL
import simplejpeg
from PIL import features

from infra.codecs import libturbojpeg
from infra.codecs.encode import MAX_JPEG_SIDE, encode_jpeg
from infra.codecs.formats import (
    MAX_PIXELS,
    WHITE,
    Color,
    DecodedImage,
    ImageRejected,
    Pixels,
    check_format,
    sniff,
)
from infra.codecs.heif import heif_build
from infra.codecs.jpeg import decode_jpeg
from infra.codecs.orientation import apply_orientation
from infra.codecs.pillow import decode_with_pillow
from infra.codecs.resize import resize_short_side, short_side_size

__all__ = [
    "MAX_JPEG_SIDE",
    "MAX_PIXELS",
    "WHITE",
    "Color",
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
REVISION = 2


def codec_builds() -> dict[str, str]:
    """Library -> version of everything that shapes stored pixels. Part of every digest."""
    return {
        "shardmill": str(REVISION),
        "simplejpeg": simplejpeg.__version__,
        "turbojpeg": libturbojpeg.build(),
        "opencv": cv2.__version__,
        "pillow": PIL.__version__,
        "littlecms": features.version("littlecms2") or "absent",
        "heif": heif_build(),
    }


def decode(
    data: bytes,
    channels: int = 3,
    *,
    max_pixels: int = MAX_PIXELS,
    background: Color = WHITE,
    allow_truncated: bool = False,
) -> DecodedImage:
    """Decode an image of any known format: upright, in sRGB, opaque, as grey or RGB.

    Args:
        data: the file's bytes.
        channels: 1 or 3.
        max_pixels: refuse larger images by their header, before anything is decoded.
        background: what shows through transparent pixels.
        allow_truncated: of a file that ends early give what there is, flagged as salvaged.

    Raises:
        ImageRejected: the bytes are no whole image, or of a kind that is not read.
    """
    found = check_format(data)
    if found == "jpeg":
        return decode_jpeg(data, channels, max_pixels, allow_truncated)
    return decode_with_pillow(data, found, channels, max_pixels, background, allow_truncated)
