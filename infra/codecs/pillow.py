"""Every format but JPEG, through Pillow: first frame, 8 bits, sRGB, no transparency, upright."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image, UnidentifiedImageError

from infra.codecs.boxes import ends_within_a_box, jp2_profile
from infra.codecs.exif import orientation_in
from infra.codecs.formats import Color, DecodedImage, ImageRejected, check_pixels, too_many_pixels
from infra.codecs.heif import open_heif
from infra.codecs.library_state import no_warnings, truncation_tolerated
from infra.codecs.orientation import apply_orientation
from infra.codecs.png_chunks import read_png
from infra.codecs.raster import flatten
from infra.codecs.rejections import (
    directory_ends_early,
    ends_early,
    rejected_by_library,
    unidentified,
)
from infra.codecs.webp_chunks import read_webp

_PILLOW_NAMES = {
    "png": "PNG",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "jpeg2000": "JPEG2000",
    "avif": "AVIF",
}
_COLORS = {
    "1": "grey 1-bit", "L": "grey", "LA": "grey+alpha", "P": "palette", "PA": "palette+alpha",
    "RGB": "RGB", "RGBA": "RGBA", "RGBX": "RGB", "RGBa": "RGBA", "CMYK": "CMYK", "LAB": "Lab",
    "YCbCr": "YCbCr", "I": "grey 32-bit", "F": "grey float",
}  # fmt: skip
# Formats of which Pillow gives what there is of a file that ends early. The others give all or nothing.
_SALVAGEABLE = frozenset({"png", "gif", "bmp", "tiff"})
_ORIENTATION, _TILE_WIDTH, _TILE_LENGTH, _BITS_PER_SAMPLE = 274, 322, 323, 258
_TURNED = 5  # from this orientation on height and width change places


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of a file before its pixels are decoded.

    Attributes:
        data: to decode: the file; of PNG and WebP without what is not the picture.
        height, width: as stored (pixels); 0 where only the library can say.
        color: as DecodedImage.source_color; "" where only the library can say.
        orientation: that EXIF gives, 1 to 8.
        icc: the ICC profile, or None.
        bits: a sample.
        png_bits: sBIT of a PNG.
        upright: the library turns the picture itself.
        short: the file is shorter than it says; what is missing may not be the picture.
    """

    data: bytes
    height: int = 0
    width: int = 0
    color: str = ""
    orientation: int = 1
    icc: bytes | None = None
    bits: int = 8
    png_bits: int | None = None
    upright: bool = False
    short: bool = False


def decode_with_pillow(
    data: bytes, found: str, channels: int, max_pixels: int, background: Color, allow_truncated: bool = False
) -> DecodedImage:
    """Decode an image of a format in ``formats.FORMATS``.

    Raises:
        ImageRejected: it is not sound, too large, or of a kind that is not read.
    """
    source = _look_at(data, found)
    check_pixels(source.height, source.width, max_pixels)
    try:
        return _decode(source, found, channels, max_pixels, background)
    except ImageRejected as rejected:
        if not allow_truncated or rejected.reason != "truncated" or found not in _SALVAGEABLE:
            raise
    with truncation_tolerated():
        return _decode(source, found, channels, max_pixels, background, salvage=True)


def _look_at(data: bytes, found: str) -> Source:
    if found == "png":
        png = read_png(data)
        return Source(
            png.picture, png.height, png.width, png.source_color, png.orientation, png.icc,
            bits=png.bit_depth, png_bits=png.significant_bits,
        )  # fmt: skip
    if found == "webp":
        webp = read_webp(data)
        return Source(
            webp.picture, webp.height, webp.width, webp.source_color, webp.orientation, webp.icc,
            short=not webp.whole,
        )  # fmt: skip
    if found in ("avif", "heif"):
        return Source(data, short=ends_within_a_box(data))
    return Source(data, short=found == "tiff" and directory_ends_early(data))


def _decode(
    source: Source, found: str, channels: int, max_pixels: int, background: Color, salvage: bool = False
) -> DecodedImage:
    short = source.short
    try:
        with no_warnings, _open(source.data, found) as image:
            source = _completed(source, image, found)
            check_pixels(source.height, source.width, max_pixels)
            _check_tiles(image, max_pixels)
            short = short or ends_early(source.data, found, image)
            image.load()
            flat = flatten(image, source.icc, source.bits, source.png_bits, background)
            pixels = flat.pixels(channels)
    except ImageRejected:
        raise
    except UnidentifiedImageError as error:
        raise unidentified(found, short) from error
    except Image.DecompressionBombError as error:
        allowed = min(max_pixels, 2 * (Image.MAX_IMAGE_PIXELS or max_pixels))
        raise ImageRejected("too_many_pixels", too_many_pixels(allowed)) from error
    except MemoryError:
        raise  # of this machine or of the image: whoever started this finds out which
    except Exception as error:  # plugins raise anything on hostile bytes; it becomes a row
        raise rejected_by_library(error, found, short) from error
    return DecodedImage(
        pixels if source.upright else apply_orientation(pixels, source.orientation),
        found,
        source.height,
        source.width,
        source.orientation,
        source.color,
        flat.icc_profile,
        flat.had_alpha,
        salvage,
    )


def _open(data: bytes, found: str) -> Image.Image:
    if found == "heif":
        return open_heif(data)
    return Image.open(io.BytesIO(data), formats=(_PILLOW_NAMES[found],))


def _completed(source: Source, image: Image.Image, found: str) -> Source:
    """``source`` with what only the opened image can say."""
    if source.height:
        return source
    width, height = image.size
    orientation, upright = 1, False
    icc, bits = image.info.get("icc_profile"), 8
    if found == "jpeg2000":
        icc = jp2_profile(source.data)
    elif found == "avif":
        orientation = orientation_in(image.info.get("exif") or b"")
    elif found == "heif":
        upright = True  # by the container's own transformations, which leave EXIF's nothing to say
    elif found == "tiff":
        tags: dict[int, Any] = dict(getattr(image, "tag_v2", {}))
        bits = max(tags.get(_BITS_PER_SAMPLE) or (1,))
        orientation, upright = _valid_orientation(tags.get(_ORIENTATION)), True
        if orientation >= _TURNED:  # Pillow turns TIFFs when it loads them, and says their size as turned
            width, height = height, width
    if image.mode.startswith("I;16") and found != "tiff":
        bits = 16
    return replace(
        source, height=height, width=width, color=_color(image, bits), orientation=orientation,
        icc=icc if isinstance(icc, bytes) else None, bits=bits, upright=upright,
    )  # fmt: skip


def _valid_orientation(value: Any) -> int:
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _color(image: Image.Image, bits: int) -> str:
    name = "grey" if image.mode.startswith("I;16") else _COLORS.get(image.mode, image.mode)
    return f"{name} {bits}-bit" if 8 < bits <= 16 else name


def _check_tiles(image: Image.Image, max_pixels: int) -> None:
    """Refuse tiles of a TIFF that are larger than an image may be: each is decoded whole."""
    tags: dict[int, Any] = dict(getattr(image, "tag_v2", {}))
    width, length = tags.get(_TILE_WIDTH, 0), tags.get(_TILE_LENGTH, 0)
    if isinstance(width, int) and isinstance(length, int):
        check_pixels(length, width, max_pixels)
