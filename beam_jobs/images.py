"""One image's way from source bytes to the stored form: pure functions over bytes.

A JPEG that becomes a JPEG goes through its planes where it can (infra.codecs.planes); everything else, and
whatever the planes cannot do exactly, through pixels: decoded upright and in sRGB, cut, scaled, encoded.
Where anything about a JPEG is amiss, it is the way through pixels that says what.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2

from beam_jobs.config import FilterConfig, ImageConfig
from infra.codecs import ImageRejected, Pixels, decode
from infra.codecs.color import conversion_to_srgb
from infra.codecs.encode import check_storable, encode
from infra.codecs.jpeg_header import JpegHeader, check_header, read_header
from infra.codecs.libturbojpeg import library
from infra.codecs.metadata import without_metadata
from infra.codecs.moments import Statistics, halve, pixel_statistics, plane_statistics
from infra.codecs.perceptual import thumbnail
from infra.codecs.pixels import fit_pixels, luma
from infra.codecs.planar import shrink_jpeg
from infra.codecs.planes import cuts_exactly, fit, turn_upright, turns_exactly
from infra.codecs.resize import Geometry, Sizing, geometry
from infra.codecs.turbojpeg import PlanarHeader, decode_planes, encode_planes, read_planar_header
from infra.errors import UnusableInput

# What libraries raise on hostile bytes, beside their own errors: the image's fault, not ours.
LIBRARY_FAULTS = (ValueError, ArithmeticError, LookupError, TypeError, RuntimeError, cv2.error)


class ImageFiltered(UnusableInput):
    """A filter of the configuration leaves this image out.

    Attributes:
        reason: "too_small" or "aspect".
        message: the sizes and the limit.
    """


@dataclass(frozen=True, slots=True)
class StoredImage:
    """The stored form of an image, and what is known of its source (see infra.contract.IMAGE_COLUMNS).

    Attributes:
        image: in the encoding of the configuration.
        height, width: of the stored image (pixels).
        stored_from: "planes", "pixels" or "source".
        source_format: "jpeg", "png", ...
        source_color: "YCbCr 4:2:0", "RGB", "palette", ...
        source_height, source_width: as stored in the source file, before orientation (pixels).
        orientation: the EXIF orientation that was applied, 1 to 8.
        statistics: mean and standard deviation of each channel of what was stored, before encoding.
        thumbnail: of the whole upright picture, for infra.codecs.perceptual.
        icc_profile, had_alpha, salvaged: as in DecodedImage.
    """

    image: bytes
    height: int
    width: int
    stored_from: str
    source_format: str
    source_color: str
    source_height: int
    source_width: int
    orientation: int
    statistics: Statistics
    thumbnail: Pixels
    icc_profile: str | None = None
    had_alpha: bool = False
    salvaged: bool = False


def convert(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage:
    """The stored form of source bytes.

    Raises:
        infra.codecs.ImageRejected: the bytes are no whole image.
        ImageFiltered: a size or aspect filter leaves it out.
    """
    return _through_planes(data, image, rules) or _through_pixels(data, image, rules)


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


def sizing_of(image: ImageConfig) -> Sizing:
    """How large images are stored."""
    exact = image.resize in ("pad", "crop")
    height = image.height if exact and image.height else image.size
    width = image.width if exact and image.width else image.size
    return Sizing(image.resize, height, width, image.upscale)


def background_of(image: ImageConfig) -> tuple[int, int, int]:
    """Red, green and blue of the configured background."""
    value = int(image.background[1:], 16)
    return value >> 16, value >> 8 & 255, value & 255


def _geometry(height: int, width: int, image: ImageConfig, rules: FilterConfig) -> Geometry:
    """Of an upright image of this size, if the filters let it pass and the result can be stored."""
    check_size(height, width, rules)
    found = geometry(height, width, sizing_of(image))
    check_storable(*found.canvas, image.encoding, image.max_pixels)
    return found


def _planar_header(data: bytes, image: ImageConfig) -> JpegHeader | None:
    """The header of a JPEG that may go through planes; None for everything else."""
    if image.encoding != "jpeg" or image.resample != "area" or data[:3] != b"\xff\xd8\xff" or not library():
        return None
    try:
        header = read_header(data)
        check_header(header, image.max_pixels)
    except ImageRejected:
        return None
    mode = {"YCbCr": "RGB", "grey": "L"}.get(header.color_space)
    if mode is None or (header.icc and conversion_to_srgb(header.icc, mode)):
        return None
    return header


def _through_planes(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage | None:
    header = _planar_header(data, image)
    planar = read_planar_header(data) if header else None
    if header is None or planar is None or (planar.height, planar.width) != (header.height, header.width):
        return None
    return _in_one_call(data, header, planar, image, rules) or _in_steps(data, header, planar, image, rules)


def _in_one_call(
    data: bytes, header: JpegHeader, planar: PlanarHeader, image: ImageConfig, rules: FilterConfig
) -> StoredImage | None:
    """The ordinary case: a whole upright picture that shrinks. None for all others."""
    if header.orientation != 1:
        return None
    try:
        check_size(header.height, header.width, rules)
    except ImageFiltered:
        return None  # the steps say so, of a picture that they found sound
    to = geometry(header.height, header.width, sizing_of(image))
    shrunk = shrink_jpeg(data, planar, to, image.channels, image.quality)
    if shrunk is None:
        return None
    return StoredImage(
        image=shrunk.image,
        height=to.canvas[0],
        width=to.canvas[1],
        stored_from="planes",
        source_format="jpeg",
        source_color=header.source_color,
        source_height=header.height,
        source_width=header.width,
        orientation=1,
        statistics=shrunk.statistics,
        thumbnail=shrunk.thumbnail,
    )


def _in_steps(
    data: bytes, header: JpegHeader, planar: PlanarHeader, image: ImageConfig, rules: FilterConfig
) -> StoredImage | None:
    stored = decode_planes(data, planar)
    if stored is None or not turns_exactly(stored, header.orientation):
        return None
    planes = turn_upright(stored, header.orientation)
    to = _geometry(planes.y.shape[0], planes.y.shape[1], image, rules)
    if not cuts_exactly(planes, to.window):
        return None
    small = fit(planes, to, image.channels, background_of(image))
    encoded = None
    if header.orientation == 1:
        encoded = _source_itself(data, image, (header.height, header.width), "jpeg", header.source_color)
    halved = halve(small.y)
    return StoredImage(
        image=encoded or encode_planes(small, image.quality),
        height=to.canvas[0],
        width=to.canvas[1],
        stored_from="source" if encoded else "planes",
        source_format="jpeg",
        source_color=header.source_color,
        source_height=header.height,
        source_width=header.width,
        orientation=header.orientation,
        statistics=plane_statistics(small, halved),
        thumbnail=thumbnail(small.y, halved) if to.keeps_all_of(*planes.y.shape) else thumbnail(planes.y),
    )


def _source_itself(
    data: bytes, image: ImageConfig, size: tuple[int, int], source_format: str, source_color: str
) -> bytes | None:
    """An upright source's own picture without its metadata, where that is wanted and is what would be stored.

    ``size`` (height, width) is that of the source, which needs no change of colours.
    """
    to = geometry(*size, sizing_of(image))
    unchanged = to.keeps_all_of(*size) and to.canvas == size
    colors = ("grey",) if image.channels == 1 else ("RGB", "YCbCr")
    # What has words behind is deeper than 8 bits; the subsampling is no word.
    name, _, more = source_color.partition(" ")
    alike = source_format == image.encoding and name in colors and (not more or name == "YCbCr")
    if not image.passthrough or not unchanged or not alike:
        return None
    return without_metadata(data, source_format)


def _through_pixels(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage:
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
    if decoded.orientation == 1 and not (decoded.icc_profile or decoded.had_alpha or decoded.salvaged):
        encoded = _source_itself(data, image, (height, width), decoded.source_format, decoded.source_color)
    return StoredImage(
        image=encoded or encode(pixels, image.encoding, image.quality),
        height=to.canvas[0],
        width=to.canvas[1],
        stored_from="source" if encoded else "pixels",
        source_format=decoded.source_format,
        source_color=decoded.source_color,
        source_height=decoded.source_height,
        source_width=decoded.source_width,
        orientation=decoded.orientation,
        statistics=pixel_statistics(pixels),
        thumbnail=thumbnail(luma(pixels if to.keeps_all_of(height, width) else decoded.pixels)),
        icc_profile=decoded.icc_profile,
        had_alpha=decoded.had_alpha,
        salvaged=decoded.salvaged,
    )
