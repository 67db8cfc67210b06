"""One image's way from source bytes to the stored form: pure functions over bytes.

Orientation and colour are normalised by the decoder, the short side is brought down by area averaging, and
the result is encoded as baseline JPEG.
"""

from __future__ import annotations

from dataclasses import dataclass

from beam_jobs.config import FilterConfig, ImageConfig
from infra.codecs import decode, encode_jpeg, resize_short_side

# What libraries raise on hostile bytes, beside their own errors: the image's fault, not ours.
LIBRARY_FAULTS = (ValueError, ArithmeticError, LookupError, TypeError, RuntimeError)


class ImageFiltered(Exception):
    """A filter of the configuration leaves this image out.

    Attributes:
        reason: "too_small" or "aspect".
        message: the sizes and the limit.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class StoredImage:
    """The stored form of an image, and what is known of its source.

    Attributes:
        image: JPEG.
        height, width: of the stored image (pixels).
        source_format: "jpeg", "png", ...
        source_height, source_width: as stored in the source file, before orientation (pixels).
        orientation: the EXIF orientation that was applied, 1 to 8.
    """

    image: bytes
    height: int
    width: int
    source_format: str
    source_height: int
    source_width: int
    orientation: int


def convert(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage:
    """The stored form of source bytes.

    Raises:
        infra.codecs.ImageRejected: the bytes are no whole image.
        ImageFiltered: a size or aspect filter leaves it out.
    """
    decoded = decode(data, image.channels, max_pixels=image.max_pixels)
    height, width = decoded.pixels.shape[:2]
    check_size(height, width, rules)
    pixels = resize_short_side(decoded.pixels, image.size)
    return StoredImage(
        encode_jpeg(pixels, image.quality),
        pixels.shape[0],
        pixels.shape[1],
        decoded.source_format,
        decoded.source_height,
        decoded.source_width,
        decoded.orientation,
    )


def check_size(height: int, width: int, rules: FilterConfig) -> None:
    """Hold an upright image's size (pixels) against the filters.

    Raises:
        ImageFiltered: it is smaller or longer than they allow.
    """
    if width < rules.min_width or height < rules.min_height:
        raise ImageFiltered(
            "too_small", f"{width}×{height} pixels, the least is {rules.min_width}×{rules.min_height}"
        )
    if rules.max_aspect is not None and max(height, width) > rules.max_aspect * min(height, width):
        raise ImageFiltered(
            "aspect", f"{width}×{height} pixels: longer than {rules.max_aspect:g} times the shorter side"
        )
