"""JPEG through libjpeg-turbo (simplejpeg), of every colour space, upright and in sRGB."""

from __future__ import annotations

from typing import cast

import numpy as np
import simplejpeg
from PIL import Image

from infra.codecs.color import Conversion, conversion_to_srgb
from infra.codecs.formats import DecodedImage, ImageRejected, Pixels
from infra.codecs.jpeg_header import JpegHeader, check_header, read_header
from infra.codecs.orientation import apply_orientation
from infra.jpeg_segments import EOI, without_metadata

__all__ = ["JpegHeader", "check_header", "conversion_of", "decode_jpeg", "decode_jpeg_small", "read_header"]

_INKS = ("CMYK", "YCCK")


def decode_jpeg(data: bytes, channels: int, max_pixels: int, allow_truncated: bool = False) -> DecodedImage:
    """Decode a JPEG.

    Raises:
        ImageRejected: it is not sound, too large, or of a kind that is not read.
    """
    header = read_header(data)
    check_header(header, max_pixels)
    if header.color_space == "other":
        raise ImageRejected("unsupported", f"a JPEG of {header.components} components")
    pixel_mode = _pixel_mode(header)
    conversion = conversion_of(header)
    as_stored = conversion is not None or pixel_mode == "CMYK"
    wanted = {"L": "GRAY", "CMYK": "CMYK"}.get(pixel_mode, "RGB")
    pixels, salvaged = _pixels(
        data, header, wanted if as_stored else "GRAY" if channels == 1 else "RGB", allow_truncated
    )
    if as_stored:
        image = _image(pixels, pixel_mode)
        image = conversion.apply(image) if conversion is not None else image.convert("RGB")
        pixels = np.asarray(image if channels == 3 else image.convert("L"))
        pixels = pixels if channels == 3 else pixels[:, :, np.newaxis]
    return DecodedImage(
        apply_orientation(pixels, header.orientation),
        "jpeg",
        header.height,
        header.width,
        header.orientation,
        header.source_color,
        icc_profile=conversion.description if conversion is not None else None,
        salvaged=salvaged,
    )


def decode_jpeg_small(data: bytes, side: int) -> Pixels:
    """A JPEG that needs no conversion, for a small picture of it: scaled down within its transform.

    Args:
        data: a JPEG in sRGB and upright, as shards hold them.
        side: neither side becomes shorter than this, if the JPEG's are not (pixels).

    Returns:
        uint8 [H, W, 3].

    Raises:
        ImageRejected: it is not sound.
    """
    try:
        return cast(Pixels, simplejpeg.decode_jpeg(data, colorspace="RGB", min_height=side, min_width=side))
    except ValueError as error:
        raise ImageRejected("corrupt", f"not a sound JPEG: {error}") from error


def conversion_of(header: JpegHeader) -> Conversion | None:
    """What brings the decoded pixels to sRGB; None where they are it."""
    return conversion_to_srgb(header.icc, _pixel_mode(header)) if header.icc else None


def _pixel_mode(header: JpegHeader) -> str:
    """The mode, as Pillow names it, of the pixels that decoding gives."""
    return "CMYK" if header.color_space in _INKS else "L" if header.color_space == "grey" else "RGB"


def _image(pixels: Pixels, mode: str) -> Image.Image:
    if mode == "CMYK":
        # Adobe's programs, which brought CMYK into JPEG, store the inks inverted; all readers assume it.
        return Image.frombytes("CMYK", pixels.shape[1::-1], (255 - pixels).tobytes())
    return Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels)


def _pixels(data: bytes, header: JpegHeader, colorspace: str, allow_truncated: bool) -> tuple[Pixels, bool]:
    """(pixels, whether they were salvaged from a file that ends early).

    libjpeg-turbo only warns of truncated or damaged data; simplejpeg's strict mode raises the first warning.
    """
    try:
        return _strict(data, colorspace), False
    except ValueError as error:
        said = str(error)
    # The damage may lie in the metadata alone: then the picture without it decodes without a warning.
    clean = without_metadata(data)
    if clean is not None and clean != data:
        try:
            return _strict(clean, colorspace), False
        except ValueError as error:
            said = str(error)
    if "premature end" not in said.lower():
        raise ImageRejected("corrupt", f"not a sound JPEG: {said}")
    if header.interleaved and not header.progressive:
        try:  # perhaps all that is missing is the mark of the end
            return _strict((clean or data) + EOI, colorspace), False
        except ValueError:
            pass
    if not allow_truncated:
        raise ImageRejected("truncated", "the JPEG ends early: its last rows are missing")
    try:
        return cast(Pixels, simplejpeg.decode_jpeg(data, colorspace=colorspace, strict=False)), True
    except ValueError as error:
        raise ImageRejected("truncated", f"the JPEG ends so early that nothing is left: {error}") from error


def _strict(data: bytes, colorspace: str) -> Pixels:
    return cast(Pixels, simplejpeg.decode_jpeg(data, colorspace=colorspace))
