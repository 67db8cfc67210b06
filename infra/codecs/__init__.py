"""Decode image files to arrays, and encode arrays to image files.

JPEG goes through libjpeg-turbo, TIFF and JPEG 2000 through imagecodecs, HEIF through libheif where it is
installed, everything else through Pillow, area averaging through OpenCV. All of them release the GIL. Formats
are recognised by content, never by name. The raw form that shards may hold is the pixels themselves: uint8
[height, width, channels], rows from the top.

imagecodecs and tifffile are loaded for the first image that needs them: readers of datasets do without them.
"""

from __future__ import annotations

import importlib
import io
from typing import Any, cast

import cv2
import numpy as np
import PIL
import simplejpeg
from PIL import Image, features

from shardmill.infra.codecs.formats import (
    FORMATS,
    MAX_PIXELS,
    WHITE,
    Color,
    DecodedImage,
    ImageRejected,
    Picture,
    Pixels,
    SourceFacts,
    Wanted,
    apply_orientation,
    check_format,
    sniff,
)
from shardmill.infra.codecs.geometry import resize_short_side, short_side_size
from shardmill.infra.codecs.jpeg import turbojpeg
from shardmill.infra.codecs.jpeg.decode import decode_jpeg
from shardmill.infra.codecs.pillow.decode import decode_with_pillow
from shardmill.infra.extras import extra_for, install, version_of
from shardmill.infra.preparation import Encoding, Hdr, StoredEncoding, Window

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

MAX_JPEG_SIDE = 65_500  # libjpeg's own limit; the format's is 65,535
_MAX_WEBP_SIDE = 16_383

_LONGEST = {"jpeg": ("a JPEG", MAX_JPEG_SIDE), "webp": ("a WebP", _MAX_WEBP_SIDE)}
# zlib's own default: level 9 takes twice the time for 1 % on photographs.
_PNG_LEVEL = 6
# libwebp's own default, from 0 (fast) to 6 (small).
_WEBP_METHOD = 4


# Builds of rules that concern some sources: which large JPEGs are decoded scaled (jpeg/planes.py), and how
# colours are converted (color/). If they alone are new, other sources keep their stored images.
SCALED_DECODING, COLORS = "scaled_decoding", "colors"
RULES = (SCALED_DECODING, COLORS)

# Pillow may take these from the system, so its own version does not tell which one is loaded.
_ENCODER_OF = {"png": "zlib", "webp": "webp"}


# Format -> the module with its decoder, and the extra that brings what it needs.
_DECODERS_OF_EXTRAS = {
    "tiff": ("tiff.decode", "prepare"),
    "jpeg2000": ("jpeg2000", "prepare"),
    "dicom": ("dicom.decode", "dicom"),
    "numpy": ("deep", "prepare"),
}


def codec_builds(encoding: Encoding) -> dict[str, str]:
    """Return the version of each library that shapes stored images, by its name. Part of every digest.

    The library that compresses is named only for the encoding that needs it: another zlib does not make a
    dataset of JPEGs read its images again.

    Args:
        encoding: the stored form.
    """
    import imagecodecs
    import tifffile

    builds = {
        "simplejpeg": simplejpeg.__version__,
        "turbojpeg": turbojpeg.build(),
        "opencv": cv2.__version__,
        "pillow": PIL.__version__,
        "tifffile": tifffile.__version__,
        "imagecodecs": imagecodecs.__version__,
        "littlecms": features.version("littlecms2") or "absent",
        "heif": version_of("pi-heif") or "absent",
        COLORS: "1",
    }
    if (pydicom := version_of("pydicom")) is not None:  # named only where it is: it came with a later release
        builds["pydicom"] = pydicom
    if encoding == "jpeg":
        builds[SCALED_DECODING] = "1"
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
    window: Window = "file",
    hdr: Hdr = "tone-map",
) -> DecodedImage:
    """Decode an image of any known format: upright, in sRGB, opaque, as grey or RGB.

    The arguments but ``data``, the file, are those of ``Wanted``.

    Raises:
        ImageRejected: the file is not a whole image, or of a kind that is not read.
    """
    wanted = Wanted(channels, max_pixels, background, allow_truncated, window, hdr)
    return decode_in_bands(data, wanted).whole()


def decode_in_bands(data: bytes, wanted: Wanted) -> Picture:
    """Decode an image of any known format: in sRGB, opaque, as grey or RGB.

    TIFFs are decompressed in bands where that is possible, and what Pillow decodes is converted in bands.

    Raises:
        ImageRejected: the file is not a whole image, or of a kind that is not read.
    """
    found = check_format(data)
    if found == "jpeg":
        return Picture.of(decode_jpeg(data, wanted))
    if found not in _DECODERS_OF_EXTRAS:
        return decode_with_pillow(data, found, wanted)
    module, _ = _DECODERS_OF_EXTRAS[found]
    try:
        loaded: Any = importlib.import_module(f"{__name__}.{module}")
    except ModuleNotFoundError as error:
        raise lacking_decoder(found, error) from error
    decoded: DecodedImage | Picture = getattr(loaded, f"decode_{found}")(data, wanted)
    return decoded if isinstance(decoded, Picture) else Picture.of(decoded)


def lacking_decoder(found: str, error: ModuleNotFoundError) -> ImageRejected:
    """Return the rejection of a file whose decoder needs a library that is not installed.

    Args:
        found: its format.
        error: what importing the decoder raised.
    """
    extra = extra_for(error.name or "", (found,)) or _DECODERS_OF_EXTRAS[found][1]
    words = f"a {FORMATS[found]} image; to read these, {install(extra)}, and prepare again"
    return ImageRejected("unsupported", words)


def check_storable(height: int, width: int, encoding: StoredEncoding, max_pixels: int) -> None:
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
