"""JPEG through libjpeg-turbo (simplejpeg): the fast path for most photographs."""

from __future__ import annotations

from typing import cast

import simplejpeg

from infra.codecs.formats import DecodedImage, ImageRejected, Pixels, check_pixels
from infra.codecs.jpeg_header import JpegHeader, check_header, read_header
from infra.codecs.orientation import apply_orientation, jpeg_orientation
from infra.jpeg_segments import without_metadata

__all__ = ["JpegHeader", "check_header", "decode_jpeg", "read_header"]


def decode_jpeg(data: bytes, channels: int, max_pixels: int) -> DecodedImage | None:
    """The fast path; None where libjpeg-turbo's RGB conversion does not apply (CMYK, YCCK)."""
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        if colorspace in ("CMYK", "YCCK"):
            return None
        check_pixels(height, width, max_pixels)
        pixels = _jpeg_pixels(data, channels)
    except ValueError as error:
        # libjpeg-turbo only warns of truncated or damaged data; simplejpeg's strict mode raises the warning.
        clean = without_metadata(data)
        if "premature end" in str(error).lower() or clean is None:
            raise _rejected_jpeg(str(error)) from error
        # The damage may lie in the metadata alone: then the picture without it decodes without a warning.
        try:
            height, width, colorspace, _ = simplejpeg.decode_jpeg_header(clean)
            check_pixels(height, width, max_pixels)
            pixels = _jpeg_pixels(clean, channels)
        except ValueError:
            raise _rejected_jpeg(str(error)) from error
    orientation = jpeg_orientation(data)
    return DecodedImage(apply_orientation(pixels, orientation), "jpeg", height, width, orientation)


def _jpeg_pixels(data: bytes, channels: int) -> Pixels:
    return cast(Pixels, simplejpeg.decode_jpeg(data, colorspace="RGB" if channels == 3 else "GRAY"))


def _rejected_jpeg(text: str) -> ImageRejected:
    if "premature end" in text.lower():
        return ImageRejected("truncated", "the JPEG ends early: its last rows are missing")
    return ImageRejected("corrupt", f"not a sound JPEG: {text}")
