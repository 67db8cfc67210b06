"""Convert one image from source bytes to the stored form, by pure functions over bytes.

There are two ways. A JPEG that becomes a JPEG goes through its planes of luma and chroma if they give an
exact result (``infra.codecs.jpeg.planes``). Every other image goes through pixels: it is decoded upright
and in sRGB, cut, scaled and encoded. The planes refuse every JPEG that has a fault, so that the way through
pixels finds and reports it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2

from beam_jobs.config import FilterConfig, ImageConfig
from beam_jobs.images.metadata import needed_metadata
from beam_jobs.schemas import AI_MADE, ASPECT, TOO_SMALL
from infra.codecs import ImageRejected, Pixels, SourceFacts, decode
from infra.codecs.color import conversion_to_srgb
from infra.codecs.encode import check_storable, encode
from infra.codecs.jpeg.decode import is_readable_in_training
from infra.codecs.jpeg.header import JpegHeader, check_header, read_header
from infra.codecs.jpeg.libturbojpeg import library
from infra.codecs.jpeg.planes import cuts_exactly, fit, turn_upright, turns_exactly
from infra.codecs.jpeg.turbojpeg import decode_planes, encode_planes, read_planar_header
from infra.codecs.measures.look import without_border
from infra.codecs.measures.moments import Statistics, halve, pixel_statistics, plane_statistics
from infra.codecs.measures.perceptual import thumbnail
from infra.codecs.metadata.reading import NOTHING, Metadata
from infra.codecs.metadata.removal import without_metadata
from infra.codecs.pixels import fit_pixels, luma
from infra.codecs.resize import Geometry, Sizing, geometry
from infra.errors import UnusableInput

# Libraries raise these on hostile bytes, besides their own errors. They are the fault of the image.
LIBRARY_FAULTS = (ValueError, ArithmeticError, LookupError, TypeError, RuntimeError, cv2.error)


class ImageFiltered(UnusableInput):
    """A filter of the configuration excludes this image.

    Attributes:
        reason: "too_small", "aspect" or "ai_made".
        message: the size and the limit, or what the file declares.
    """


@dataclass(frozen=True, slots=True)
class StoredImage:
    """The stored form of an image (see infra.format.contract.IMAGE_COLUMNS).

    Attributes:
        image: encoded as the configuration says.
        height, width: of the stored image (pixels).
        stored_from: "planes", "pixels" or "source".
        source: facts about the source file.
        statistics: mean and standard deviation of each stored channel, before encoding.
        thumbnails: of the whole upright image, and if it has a border of what is inside, for
            infra.codecs.measures.perceptual and infra.codecs.measures.look.
        metadata: what the file says of itself, if the configuration asks for any of it.
    """

    image: bytes
    height: int
    width: int
    stored_from: str
    source: SourceFacts
    statistics: Statistics
    thumbnails: tuple[Pixels, ...]
    metadata: Metadata = NOTHING


def convert(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage:
    """Convert source bytes to their stored form.

    Raises:
        infra.codecs.ImageRejected: the bytes are not a complete image.
        ImageFiltered: a filter excludes the image, by its metadata, size or aspect.
    """
    metadata = needed_metadata(data, image, rules)
    check_origin(metadata, rules)
    stored = _through_planes(data, image, rules) or _through_pixels(data, image, rules)
    return stored if metadata is NOTHING else replace(stored, metadata=metadata)


def check_origin(metadata: Metadata, rules: FilterConfig) -> None:
    """Check what a file declares of its origin against the filters.

    Raises:
        ImageFiltered: it declares that a generative model made it, and such images are left out.
    """
    if rules.ai_made == "drop" and metadata.is_ai_made:
        raise ImageFiltered(AI_MADE, f"it declares the digital source type {metadata.digital_source_type}")


def check_size(height: int, width: int, rules: FilterConfig) -> None:
    """Check the size of an upright image (pixels) against the filters.

    Raises:
        ImageFiltered: the image is smaller or longer than they allow.
    """
    if width < rules.min_width or height < rules.min_height:
        raise ImageFiltered(
            TOO_SMALL, f"{width}×{height} pixels, the least is {rules.min_width}×{rules.min_height}"
        )
    if rules.max_aspect is not None and max(height, width) > rules.max_aspect * min(height, width):
        raise ImageFiltered(
            ASPECT, f"{width}×{height} pixels: longer than {rules.max_aspect:g} times the shorter side"
        )


def sizing_of(image: ImageConfig) -> Sizing:
    """Return the rule for the size of stored images."""
    exact = image.resize in ("pad", "crop")
    height = image.height if exact and image.height else image.size
    width = image.width if exact and image.width else image.size
    return Sizing(image.resize, height, width, image.upscale)


def background_of(image: ImageConfig) -> tuple[int, int, int]:
    """Return red, green and blue of the configured background."""
    value = int(image.background[1:], 16)
    return value >> 16, value >> 8 & 255, value & 255


def _geometry(height: int, width: int, image: ImageConfig, rules: FilterConfig) -> Geometry:
    """Return the geometry of an upright image, after checking the filters and the limits of the encoding."""
    check_size(height, width, rules)
    found = geometry(height, width, sizing_of(image))
    check_storable(*found.canvas, image.encoding, image.max_pixels)
    return found


def _planar_header(data: bytes, image: ImageConfig) -> JpegHeader | None:
    """Read the header of a JPEG that may go through planes; None for every other file."""
    if image.encoding != "jpeg" or image.resample != "area" or data[:3] != b"\xff\xd8\xff" or not library():
        return None
    try:
        header = read_header(data)
        check_header(header, image.max_pixels)
    except ImageRejected:
        return None
    if not header.complete:
        return None
    mode = {"YCbCr": "RGB", "grey": "L"}.get(header.color_space)
    if mode is None or (header.icc and conversion_to_srgb(header.icc, mode)):
        return None
    return header


def _through_planes(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage | None:
    """Convert a JPEG without making pixels; None if the result would not be exact or the JPEG has a fault."""
    header = _planar_header(data, image)
    planar = read_planar_header(data) if header else None
    if header is None or planar is None or (planar.height, planar.width) != (header.height, header.width):
        return None
    stored = decode_planes(data, planar)
    if stored is None or not turns_exactly(stored, header.orientation):
        return None
    planes = turn_upright(stored, header.orientation)
    to = _geometry(planes.y.shape[0], planes.y.shape[1], image, rules)
    if not cuts_exactly(planes, to.window):
        return None
    small = fit(planes, to, image.channels, background_of(image))
    source = SourceFacts("jpeg", header.source_color, header.height, header.width, header.orientation)
    encoded = None
    if source.orientation == 1:
        encoded = _unchanged_source(data, image, source)
    halved = halve(small.y)
    return StoredImage(
        image=encoded or encode_planes(small, image.quality),
        height=to.canvas[0],
        width=to.canvas[1],
        stored_from="source" if encoded else "planes",
        source=source,
        statistics=plane_statistics(small, halved),
        thumbnails=_thumbnails(small.y, halved)
        if to.keeps_all_of(*planes.y.shape)
        else _thumbnails(planes.y),
    )


def _unchanged_source(data: bytes, image: ImageConfig, source: SourceFacts) -> bytes | None:
    """Copy an upright source without its metadata if it already has the stored size and format.

    Args:
        data: the source.
        image: None is returned unless it asks for unchanged copies (``passthrough``).
        source: its facts; the colours need no conversion to sRGB.
    """
    size = source.height, source.width
    to = geometry(*size, sizing_of(image))
    same_size = to.keeps_all_of(*size) and to.canvas == size
    colors = ("grey",) if image.channels == 1 else ("RGB", "YCbCr")
    # A colour with further words is deeper than 8 bits or lossless, except for the subsampling of YCbCr.
    name, _, more = source.color.partition(" ")
    same_form = source.format == image.encoding and name in colors and (not more or name == "YCbCr")
    if not image.passthrough or not same_size or not same_form:
        return None
    return without_metadata(data, source.format)


def _through_pixels(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage:
    """Decode an image to pixels and convert these.

    Raises:
        infra.codecs.ImageRejected: the bytes are not a complete image.
        ImageFiltered: a size or aspect filter excludes the image.
    """
    decoded = decode(
        data,
        image.channels,
        max_pixels=image.max_pixels,
        background=background_of(image),
        allow_truncated=image.allow_truncated,
    )
    height, width = decoded.pixels.shape[:2]
    to = _geometry(height, width, image, rules)
    pixels = fit_pixels(decoded.pixels, to, image.resample, background_of(image))
    encoded = None
    source = decoded.source
    if source.orientation == 1 and not (source.icc_profile or source.had_alpha or source.salvaged):
        encoded = _unchanged_source(data, image, source)
        if encoded and source.format == "jpeg" and not is_readable_in_training(encoded):
            encoded = None
    return StoredImage(
        image=encoded or encode(pixels, image.encoding, image.quality),
        height=to.canvas[0],
        width=to.canvas[1],
        stored_from="source" if encoded else "pixels",
        source=source,
        statistics=pixel_statistics(pixels),
        thumbnails=_thumbnails(luma(pixels if to.keeps_all_of(height, width) else decoded.pixels)),
    )


def _thumbnails(luma: Pixels, halved: Pixels | None = None) -> tuple[Pixels, ...]:
    """Shrink luma, and what is inside its border if it has one."""
    whole, inside = thumbnail(luma, halved), without_border(luma)
    return (whole,) if inside is None else (whole, thumbnail(inside))
