"""Decode image files to arrays, and encode arrays to image files.

JPEG goes through libjpeg-turbo, TIFF and JPEG 2000 through imagecodecs, HEIF through libheif where it is
installed, everything else through Pillow, area averaging through OpenCV. All of them release the GIL. Formats
are recognised by content, never by name.
"""

from __future__ import annotations

import cv2
import imagecodecs
import PIL
import simplejpeg
import tifffile
from PIL import features

from shardmill.infra.codecs.encode import MAX_JPEG_SIDE, encode_jpeg
from shardmill.infra.codecs.formats import (
    MAX_PIXELS,
    WHITE,
    Color,
    DecodedImage,
    ImageRejected,
    Pixels,
    SourceFacts,
    check_format,
    sniff,
)
from shardmill.infra.codecs.jpeg import libturbojpeg
from shardmill.infra.codecs.jpeg.decode import decode_jpeg
from shardmill.infra.codecs.jpeg2000 import decode_jpeg2000
from shardmill.infra.codecs.orientation import apply_orientation
from shardmill.infra.codecs.pillow.decode import decode_with_pillow
from shardmill.infra.codecs.pillow.library_state import heif_build
from shardmill.infra.codecs.resize import resize_short_side, short_side_size
from shardmill.infra.codecs.tiff.decode import decode_tiff
from shardmill.infra.preparation import Encoding

__all__ = [
    "MAX_JPEG_SIDE",
    "MAX_PIXELS",
    "WHITE",
    "Color",
    "DecodedImage",
    "ImageRejected",
    "Pixels",
    "SourceFacts",
    "apply_orientation",
    "codec_builds",
    "decode",
    "encode_jpeg",
    "resize_short_side",
    "short_side_size",
    "sniff",
]

# Pillow may take these from the system, so its own version does not tell which one is loaded.
_ENCODER_OF = {"png": "zlib", "webp": "webp"}


def codec_builds(encoding: Encoding) -> dict[str, str]:
    """Return the version of each library that shapes stored images, by its name. Part of every digest.

    The library that compresses is named only for the encoding that needs it: another zlib does not make a
    dataset of JPEGs read its images again.

    Args:
        encoding: the stored form.
    """
    builds = {
        "simplejpeg": simplejpeg.__version__,
        "turbojpeg": libturbojpeg.build(),
        "opencv": cv2.__version__,
        "pillow": PIL.__version__,
        "tifffile": tifffile.__version__,
        "imagecodecs": imagecodecs.__version__,
        "littlecms": features.version("littlecms2") or "absent",
        "heif": heif_build(),
    }
    if library := _ENCODER_OF.get(encoding):
        builds[library] = features.version(library) or "absent"
    return builds


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
        data: the file.
        channels: 1 for grey, 3 for RGB.
        max_pixels: refuse larger images by their header, before anything is decoded.
        background: colour behind transparent pixels.
        allow_truncated: decode what there is of a file that ends early, and flag it as salvaged.

    Raises:
        ImageRejected: the file is not a whole image, or of a kind that is not read.
    """
    found = check_format(data)
    if found == "jpeg":
        return decode_jpeg(data, channels, max_pixels, allow_truncated)
    if found == "tiff":
        return decode_tiff(data, channels, max_pixels, background, allow_truncated)
    if found == "jpeg2000":
        return decode_jpeg2000(data, channels, max_pixels, background)
    return decode_with_pillow(data, found, channels, max_pixels, background, allow_truncated)
