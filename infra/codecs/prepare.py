"""Prepare one image: from the bytes of its file to the stored form, by pure functions over bytes.

There are three ways. A JPEG that becomes a JPEG goes through its planes of luma and chroma if they give an
exact result (``shardmill.infra.codecs.jpeg.planes``). Images that are to have more than 8 bits, or other
channels than grey or RGB, go through their samples (``shardmill.infra.codecs.deep``). Every other image goes
through pixels: it is decoded upright and in sRGB, cut, scaled and encoded. The planes refuse every JPEG that
has a fault, so that the way through pixels finds and reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import cast

import cv2
import numpy as np

from shardmill.infra.codecs import ImageRejected, Pixels, SourceFacts, check_storable, decode_in_bands, encode
from shardmill.infra.codecs.arrays import encode_samples, in_grey, kind_of
from shardmill.infra.codecs.formats import DecodedImage, Picture, Wanted, apply_orientation
from shardmill.infra.codecs.geometry import (
    TRANSPOSED,
    AreaResize,
    Geometry,
    Samples,
    geometry,
    resize,
    resize_samples,
)
from shardmill.infra.codecs.jpeg.decode import is_readable_in_training
from shardmill.infra.codecs.jpeg.header import JpegHeader, check_header, read_header
from shardmill.infra.codecs.jpeg.planes import (
    cuts_exactly,
    decoding_scale,
    fit,
    luma_of_picture,
    turn_upright,
    turns_exactly,
)
from shardmill.infra.codecs.jpeg.turbojpeg import decode_planes, encode_planes, library, read_planar_header
from shardmill.infra.codecs.measures import Measures
from shardmill.infra.codecs.metadata import NOTHING, Metadata, without_metadata
from shardmill.infra.codecs.samples import DeepWanted
from shardmill.infra.errors import UnusableInput
from shardmill.infra.preparation import Preparation, Resample, SampleKind, StoredEncoding


def fit_pixels(
    pixels: Samples, to: Geometry, resample: Resample, background: tuple[int, int, int]
) -> Samples:
    """Cut and scale a picture, and lay it on its canvas.

    Args:
        pixels: uint8, uint16 or float32 [H, W, C], upright.
        to: window, scale and place on the canvas.
        resample: the filter.
        background: red, green and blue of the canvas around the picture, in 8 bits. It is 0 around float32
            and around other numbers of channels than 1 and 3, where colours mean nothing.

    Returns:
        [h, w, C] of the same type.
    """
    top, left, height, width = to.window
    part = pixels[top : top + height, left : left + width]
    scaled = (resize if kind_of(pixels).is_common else resize_samples)(part, to.scaled, resample)
    return _on_canvas(scaled, to, background)


def _on_canvas(scaled: Samples, to: Geometry, background: tuple[int, int, int]) -> Samples:
    """Lay a scaled picture, [H, W, C], on its canvas."""
    if to.canvas == to.scaled:
        return scaled
    channels = scaled.shape[2]
    whole = np.zeros((*to.canvas, channels), scaled.dtype)
    if channels in (1, 3) and scaled.dtype != np.float32:
        colour = np.array([[background]], np.uint8)
        colour = colour if channels == 3 else luma(colour)[:, :, np.newaxis]
        whole[:] = colour.astype(scaled.dtype) * (np.iinfo(scaled.dtype).max // 255)
    top, left = to.offset
    whole[top : top + to.scaled[0], left : left + to.scaled[1]] = scaled
    return whole


def luma(pixels: Pixels) -> Pixels:
    """Return the luma (ITU-R BT.601), uint8 [H, W], of pixels, uint8 [H, W, 1 or 3]."""
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    return cast(Pixels, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))


# Libraries raise these on hostile bytes, besides their own errors. They are the fault of the image.
LIBRARY_FAULTS = (ValueError, ArithmeticError, LookupError, TypeError, RuntimeError, cv2.error)

# Raises an error of its own for an upright image of this height and width (pixels) that is not wanted.
CheckSize = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class StoredImage:
    """The stored form of an image (see shardmill.infra.format.contract.IMAGE_COLUMNS).

    Attributes:
        image: encoded as the preparation says.
        upright: height and width of the upright source (pixels).
        geometry: the steps from the upright source to the stored image.
        stored_from: "planes", "pixels" or "source".
        source: facts about the source file.
        samples: of the stored image.
        measures: of the stored image before encoding, and of the whole upright image.
        metadata: what the file says of itself, if it was asked for.
    """

    image: bytes
    upright: tuple[int, int]
    geometry: Geometry
    stored_from: str
    source: SourceFacts
    samples: SampleKind
    measures: Measures
    metadata: Metadata = NOTHING

    @property
    def height(self) -> int:
        """Height of the stored image (pixels)."""
        return self.geometry.canvas[0]

    @property
    def width(self) -> int:
        """Width of the stored image (pixels)."""
        return self.geometry.canvas[1]


def _any_size(_height: int, _width: int) -> None:
    """Take images of every size."""


def prepare_image(data: bytes, how: Preparation, check_size: CheckSize = _any_size) -> StoredImage:
    """Convert the bytes of an image file to the stored form.

    Raises:
        ImageRejected: the bytes are not a complete image. Libraries may also raise LIBRARY_FAULTS.
    """
    kind, decoded = how.samples, None
    if kind is None or how.reads_samples:
        from shardmill.infra.codecs.deep import common_channels  # readers do without tifffile

        wanted = DeepWanted.of(how)
        common = common_channels(data, wanted)
        if common is None:
            return _through_samples(data, how, wanted, check_size)
        channels, decoded = common
        kind = SampleKind("uint8", channels)
    planar = _through_planes(data, how, kind, check_size)
    return planar or _through_pixels(data, how, kind, check_size, decoded)


def _check(
    upright: tuple[int, int], to: Geometry, how: Preparation, check_size: CheckSize, encoding: StoredEncoding
) -> None:
    """Check the size of an upright image, and that of the stored one by the limits of the encoding."""
    check_size(*upright)
    check_storable(*to.canvas, encoding, how.max_pixels)


def _through_samples(data: bytes, how: Preparation, wanted: DeepWanted, check_size: CheckSize) -> StoredImage:
    """Convert an image of more than 8 bits, or of other channels than grey or RGB.

    Raises:
        ImageRejected: the bytes are not a complete image, or one of other samples than are wanted.
    """
    from shardmill.infra.codecs.deep import decode_deep

    decoded = decode_deep(data, wanted)
    height, width = decoded.pixels.shape[:2]
    kind = kind_of(decoded.pixels)
    to = geometry(height, width, how.sizing)
    _check((height, width), to, how, check_size, kind.stored_as(how.encoding))
    pixels = fit_pixels(decoded.pixels, to, how.resample, how.color_behind)
    stored = in_grey(pixels[to.picture])
    return StoredImage(
        image=encode(pixels, how.encoding, how.quality)
        if kind.is_common
        else encode_samples(pixels, kind.stored_as(how.encoding)),
        upright=(height, width),
        geometry=to,
        stored_from="pixels",
        source=decoded.source,
        samples=kind,
        measures=Measures.of_samples(
            pixels,
            stored if to.keeps_all_of(height, width) else in_grey(decoded.pixels),
            stored,
        ),
    )


def _planar_header(data: bytes, how: Preparation) -> tuple[JpegHeader, str] | None:
    """Read the header of a JPEG that may go through planes, and the note on its colours (``SourceFacts``).

    None for every other file.
    """
    if how.encoding != "jpeg" or how.resample != "area" or data[:3] != b"\xff\xd8\xff" or not library():
        return None
    try:
        header = read_header(data)
        check_header(header, how.max_pixels)
    except ImageRejected:
        return None
    if not header.complete or header.color_space not in ("YCbCr", "grey"):
        return None
    conversion, note = header.conversion()
    return None if conversion else (header, note)


def _through_planes(
    data: bytes, how: Preparation, kind: SampleKind, check_size: CheckSize
) -> StoredImage | None:
    """Convert a JPEG without making pixels; None if the result would not be exact or the JPEG has a fault."""
    found = _planar_header(data, how)
    planar = read_planar_header(data) if found else None
    if found is None or planar is None:
        return None
    header, note = found
    if (planar.height, planar.width) != (header.height, header.width):
        return None
    upright = header.height, header.width
    if header.orientation in TRANSPOSED:
        upright = header.width, header.height
    to = geometry(*upright, how.sizing)
    scale = decoding_scale(to, planar.sample, header.orientation, kind.channels)
    stored = decode_planes(data, planar, scale)
    if stored is None or not turns_exactly(stored, header.orientation):
        return None
    planes = turn_upright(stored, header.orientation)
    _check(upright, to, how, check_size, how.encoding)
    if not cuts_exactly(planes, to.window):
        return None
    small = fit(planes, to, kind.channels, how.color_behind)
    source = SourceFacts(
        "jpeg", header.source_color, header.height, header.width, header.orientation, note=note
    )
    encoded = None
    if source.orientation == 1:
        encoded = _unchanged_source(data, how, kind, source)
    return StoredImage(
        image=encoded or encode_planes(small, how.quality),
        upright=upright,
        geometry=to,
        stored_from="source" if encoded else "planes",
        source=source,
        samples=kind,
        measures=Measures.of_planes(
            small, None if to.keeps_all_of(*upright) else luma_of_picture(planes), to
        ),
    )


def _unchanged_source(data: bytes, how: Preparation, kind: SampleKind, source: SourceFacts) -> bytes | None:
    """Copy an upright source without its metadata if it already has the stored size and format.

    Args:
        data: the source.
        how: None is returned unless it asks for unchanged copies (``passthrough``).
        kind: of the stored image.
        source: its facts; the colours need no conversion to sRGB.
    """
    size = source.height, source.width
    to = geometry(*size, how.sizing)
    same_size = to.keeps_all_of(*size) and to.canvas == size
    colors = ("grey",) if kind.channels == 1 else ("RGB", "YCbCr")
    # A colour with further words is deeper than 8 bits or lossless, except for the subsampling of YCbCr.
    name, _, more = source.color.partition(" ")
    same_form = source.format == how.encoding and name in colors and (not more or name == "YCbCr")
    if not how.passthrough or not same_size or not same_form:
        return None
    return without_metadata(data, source.format)


def _through_pixels(
    data: bytes, how: Preparation, kind: SampleKind, check_size: CheckSize, decoded: DecodedImage | None
) -> StoredImage:
    """Decode an image to pixels, unless it is ``decoded``, and convert these.

    Raises:
        shardmill.infra.codecs.ImageRejected: the bytes are not a complete image.
    """
    picture = Picture.of(decoded) if decoded else decode_in_bands(data, Wanted.of(how, kind.channels))
    fitted = _fit(picture, how, check_size)
    pixels, source = fitted.pixels, picture.facts()
    encoded = None
    if source.orientation == 1 and not (source.icc_profile or source.had_alpha or source.salvaged):
        encoded = _unchanged_source(data, how, kind, source)
        if encoded and source.format == "jpeg" and not is_readable_in_training(encoded):
            encoded = None
    return StoredImage(
        image=encoded or encode(pixels, how.encoding, how.quality),
        upright=fitted.upright,
        geometry=fitted.geometry,
        stored_from="source" if encoded else "pixels",
        source=source,
        samples=kind,
        measures=Measures.of_pixels(pixels, fitted.shown, fitted.stored),
    )


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A picture at its stored size.

    Attributes:
        pixels: uint8 [h, w, C].
        upright: height and width of the upright picture (pixels).
        geometry: the steps from it to ``pixels``.
        shown: what its thumbnails show of it: luma, uint8 [H, W].
        stored: luma of what is stored of it; ``shown`` if that is all.
    """

    pixels: Pixels
    upright: tuple[int, int]
    geometry: Geometry
    shown: Pixels
    stored: Pixels

    @classmethod
    def of(
        cls, pixels: Pixels, upright: tuple[int, int], to: Geometry, whole: Callable[[], Pixels]
    ) -> _Fitted:
        """Take the luma; ``whole`` returns that of a picture of which not all is stored."""
        stored = luma(pixels[to.picture])
        return cls(pixels, upright, to, stored if to.keeps_all_of(*upright) else whole(), stored)


def _fit(picture: Picture, how: Preparation, check_size: CheckSize) -> _Fitted:
    """Cut and scale a picture: in bands if it has several, and need not be turned or filtered as a whole."""
    first = next(picture.bands)
    if len(first) < picture.height:
        picture = replace(picture, bands=chain((first,), picture.bands))
        if how.resample == "area" and picture.orientation == 1:
            return _fit_bands(picture, how, check_size)
        first = picture.whole().pixels
    else:
        first = apply_orientation(first, picture.orientation)
    upright = first.shape[0], first.shape[1]
    to = geometry(*upright, how.sizing)
    _check(upright, to, how, check_size, how.encoding)
    pixels = fit_pixels(first, to, how.resample, how.color_behind)
    return _Fitted.of(pixels, upright, to, lambda: luma(first))


def _fit_bands(picture: Picture, how: Preparation, check_size: CheckSize) -> _Fitted:
    """Fit an upright picture by area, without ever holding all of its pixels; to the same bytes."""
    upright = picture.height, picture.width
    to = geometry(*upright, how.sizing)
    try:
        _check(upright, to, how, check_size, how.encoding)
    except UnusableInput:
        for _ in picture.bands:
            pass  # damage is named first
        raise
    top, left, height, width = to.window
    seen, row, scaling = [], 0, None
    for band in picture.bands:
        scaling = scaling or AreaResize((height, width, band.shape[2]), to.scaled)
        inside = slice(max(0, top - row), max(0, top + height - row))
        scaling.add(band[inside, left : left + width])
        row += len(band)
        if not to.keeps_all_of(*upright):
            seen.append(luma(band))
    assert scaling is not None
    pixels = _on_canvas(scaling.result(), to, how.color_behind)
    return _Fitted.of(pixels, upright, to, lambda: np.concatenate(seen))
