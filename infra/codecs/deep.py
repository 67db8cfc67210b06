"""Decode images to other samples than 8 bits of grey or RGB: deeper ones, and any number of channels.

A file is read to its samples (``FileSamples``), which are then brought to the channels and the depth that
are wanted. Depth 8 and 16 are shades: black is 0, white 255 or 65,535. "float32" and "keep" are the numbers
of the file: nothing is scaled, only grey whose white is zero is turned round. "keep" stores unsigned numbers
of up to 8 bits as uint8, up to 16 bits as uint16, and all others as float32.

PNG and TIFF are read here. Files of the other formats, and TIFFs whose samples are no shades (palettes, inks,
YCbCr, Lab, fax, JPEG), are 8 bits of grey or RGB, as ``codecs.decode`` gives them: in sRGB and opaque. Such a
file of more bits is refused, because decoding it would lose them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import imagecodecs
import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import decode
from shardmill.infra.codecs.color import Choice, Conversion, Statement, ToneMapping, choose_conversion
from shardmill.infra.codecs.formats import (
    FORMATS,
    Color,
    ImageRejected,
    SourceFacts,
    apply_orientation,
    check_format,
    check_pixels,
)
from shardmill.infra.codecs.jpeg.header import read_header
from shardmill.infra.codecs.structure.heif_colors import heif_colors
from shardmill.infra.codecs.structure.png_chunks import PngFile, can_hold_all_rows, is_undamaged, read_png
from shardmill.infra.codecs.tiff.decode import TiffSamples, black_and_white, read_strips
from shardmill.infra.codecs.tiff.kinds import ASSOCIATED, INT, UINT, WHITE_IS_ZERO, check_samples, is_shades
from shardmill.infra.codecs.tiff.page import read_page
from shardmill.infra.preparation import Depth, Hdr

Values = npt.NDArray[Any]

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
_ROWS = 64  # that are computed in float64 at a time
_BYTES_A_PIXEL = 3  # of memory for the samples, for each pixel that max_pixels allows
_DEEP_COLOR = re.compile(r"(\d+)-bit| float")


@dataclass(frozen=True, slots=True)
class DeepWanted:
    """The image that is made of a file.

    Attributes:
        depth: 8, 16, "float32" or "keep".
        channels: samples of a pixel; "keep": those of the file, of which opacity is one.
        max_pixels: refuse larger images by their header. Their samples may take 3 bytes for each.
        background: colour behind transparent pixels, where 1 or 3 channels are wanted.
        allow_truncated: decode what there is of a TIFF that ends early.
        hdr: what becomes of HDR.
    """

    depth: Depth
    channels: int | Literal["keep"]
    max_pixels: int
    background: Color
    allow_truncated: bool = False
    hdr: Hdr = "tone-map"


@dataclass(frozen=True, slots=True)
class FileSamples:
    """The samples of a file.

    Attributes:
        values: [H, W, S] of a numeric type, upright.
        source: facts about the file.
        colors: how many samples are colours: 1 (grey), 3 (RGB), or 0 if the file does not say.
        shades: the numbers of black and white; None if the file does not say.
        alpha_at: the sample that is the opacity, or None.
        premultiplied: colours are multiplied by the opacity.
        conversion: of the colours to sRGB; None if they are in sRGB, or no colours.
    """

    values: Values
    source: SourceFacts
    colors: int = 0
    shades: tuple[float, float] | None = None
    alpha_at: int | None = None
    premultiplied: bool = False
    conversion: Conversion | ToneMapping | None = None


@dataclass(frozen=True, slots=True)
class DeepImage:
    """A decoded image.

    Attributes:
        pixels: uint8, uint16 or float32 [H, W, C], upright.
        source: facts about the file.
    """

    pixels: Values
    source: SourceFacts


def decode_deep(data: bytes, wanted: DeepWanted) -> DeepImage:
    """Decode an image to the samples that are wanted.

    Raises:
        ImageRejected: the file is damaged or too large, is of a kind that is not read ("unsupported"), has
            other channels than are wanted ("channels"), or numbers that are not finite ("not_finite").
    """
    reader = _READERS.get(check_format(data))
    found = reader(data, wanted) if reader else _read_common(data, wanted)
    if found.conversion is not None:
        found = _in_srgb(found, wanted.depth)
    found = _in_channels(found, wanted)
    return DeepImage(_in_depth(found, wanted.depth), found.source)


def common_channels(data: bytes, wanted: DeepWanted) -> int | None:
    """Return 1 or 3 if the image that is wanted has 8 bits in grey or RGB, where the file decides; else None.

    Then ``codecs.decode`` makes it, which converts colours to sRGB.

    Raises:
        ImageRejected: the file is damaged, or has more than 8 bits that are wanted and cannot be read.
    """
    if wanted.depth not in (8, "keep") or wanted.channels not in (1, 3, "keep"):
        return None
    bits, channels = _described(data, wanted)
    channels = channels if wanted.channels == "keep" else wanted.channels
    return channels if channels in (1, 3) and (bits == 8 or wanted.depth == 8) else None


def _described(data: bytes, wanted: DeepWanted) -> tuple[int, int]:
    """Return 8, or more or others, and the channels of a file, by its header where that tells."""
    found = check_format(data)
    if found == "png":
        png = read_png(data)
        return png.bit_depth if png.bit_depth > 8 else 8, png.channels
    if found == "tiff":
        kind = read_page(data, wanted.max_pixels).kind
        if is_shades(kind):
            of_8_bits = kind.sample_format == UINT and max(kind.bits) <= 8
            return 8 if of_8_bits else max(9, *kind.bits), kind.samples
    if found == "jpeg":
        header = read_header(data)
        return 8, 1 if header.color_space == "grey" else 3
    return 8, _read_common(data, wanted, check_bits=wanted.depth != 8).colors


def _read_common(data: bytes, wanted: DeepWanted, *, check_bits: bool = True) -> FileSamples:
    """Read a file of 8 bits of grey or RGB, with its opacity laid on the background."""
    decoded = decode(
        data,
        max_pixels=wanted.max_pixels,
        background=wanted.background,
        allow_truncated=wanted.allow_truncated,
        hdr=wanted.hdr,
    )
    source = decoded.source
    if check_bits:
        _check_bits(heif_colors(data).bits if source.format in ("avif", "heif") else 8, source)
    grey = source.color.startswith("grey") and not (source.icc_profile or source.had_alpha)
    pixels = decoded.pixels[:, :, :1] if grey else decoded.pixels
    return FileSamples(pixels, source, pixels.shape[2], (0.0, 255.0))


def _check_bits(bits: int, source: SourceFacts) -> None:
    found = _DEEP_COLOR.search(source.color)
    if bits > 8 or (found is not None and int(found[1] or 32) > 8):
        raise ImageRejected(
            "unsupported",
            f"a {FORMATS[source.format]} file of more than 8 bits ({source.color}), of which only 8 are "
            "read; set image.depth to 8, or save it as TIFF or PNG",
        )


def _read_png(data: bytes, wanted: DeepWanted) -> FileSamples:
    png = read_png(data)
    check_pixels(png.height, png.width, wanted.max_pixels)
    _check_bytes(png.height * png.width * 4 * (2 if png.bit_depth > 8 else 1), wanted.max_pixels)
    if not is_undamaged(png):
        raise ImageRejected("corrupt", "not a sound PNG file: its pixel data does not match its checksums")
    if not png.ended or not can_hold_all_rows(png):
        raise ImageRejected("truncated", "the PNG file ends early")
    try:
        values = imagecodecs.png_decode(png.picture)
    except imagecodecs.PngError as error:
        reason = "truncated" if "too small" in str(error) else "corrupt"
        raise ImageRejected(reason, f"not a sound PNG file: {error}") from error
    values = values.reshape(png.height, png.width, -1)
    colors = 3 if values.shape[2] >= 3 else 1
    choice = _choice(png.stated, colors, wanted.hdr)
    source = SourceFacts("png", png.source_color, png.height, png.width, png.orientation, note=choice.note)
    return FileSamples(
        apply_orientation(values, png.orientation),
        source,
        colors,
        (0.0, _white_of_png(values, png)),
        alpha_at=colors if values.shape[2] > colors else None,
        conversion=choice.conversion,
    )


def _white_of_png(values: Values, png: PngFile) -> float:
    """Return the sample that is white.

    Some files of 16 bits hold fewer and say so by sBIT, without the scaling that the specification asks for:
    no sample reaches 2^sBIT, and the low bits are in use.
    """
    bits = png.significant_bits
    largest = int(np.iinfo(values.dtype).max)
    if values.dtype != np.uint16 or values.shape[2] not in (1, 3):
        return float(largest)
    unscaled = values.max(initial=0) < 1 << bits and (values & ((1 << (16 - bits)) - 1)).any()
    return float((1 << bits) - 1 if unscaled else largest)


def _read_tiff(data: bytes, wanted: DeepWanted) -> FileSamples:
    page = read_page(data, wanted.max_pixels)
    kind = page.kind
    if not is_shades(kind):
        return _read_common(data, wanted)
    check_samples(kind)
    _check_bytes(page.height * page.width * kind.samples * max(1, kind.bits[0] // 8), wanted.max_pixels)
    read = read_strips(data, page, wanted.max_pixels, wanted.allow_truncated)
    colors = read.colors
    values, shades = read.samples, _shades_of_tiff(read)
    if kind.photometric == WHITE_IS_ZERO:
        values = values.copy()
        values[:, :, 0] = (np.iinfo(values.dtype).max >> (8 * values.itemsize - kind.bits[0])) - values[
            :, :, 0
        ]
    choice = _choice((page.icc,) if page.icc else (), colors, wanted.hdr)
    source = read.facts(note=choice.note)
    others = kind.samples - colors - (read.alpha_at is not None)
    if others:
        name, _, more = source.color.partition(" ")
        source = replace(source, color=f"{name}+{others} {more}".rstrip())
    return FileSamples(
        apply_orientation(values, page.orientation), source, colors, shades, read.alpha_at,
        ASSOCIATED in kind.extra, choice.conversion,
    )  # fmt: skip


def _shades_of_tiff(read: TiffSamples) -> tuple[float, float] | None:
    if read.page.kind.sample_format == INT:  # the tags alone can tell
        return read.page.declared_range
    try:
        return black_and_white(read.samples, read.page)
    except ImageRejected:
        return None


# A reader of each format whose files may hold other samples than 8 bits of grey or RGB.
_READERS: Final[dict[str, Callable[[bytes, DeepWanted], FileSamples]]] = {
    "png": _read_png,
    "tiff": _read_tiff,
}


def _check_bytes(num_bytes: int, max_pixels: int) -> None:
    allowed = _BYTES_A_PIXEL * max_pixels
    if num_bytes > allowed:
        raise ImageRejected(
            "too_many_pixels",
            f"its samples take {num_bytes:,} bytes, and image.max_pixels allows {allowed:,} "
            f"({_BYTES_A_PIXEL} for each pixel)",
        )


def _choice(stated: Sequence[Statement], colors: int, hdr: Hdr) -> Choice:
    return choose_conversion(stated, "L" if colors == 1 else "RGB", hdr)


def _in_srgb(found: FileSamples, depth: Depth) -> FileSamples:
    """Convert shades to sRGB, at 16 bits. Numbers are not converted."""
    conversion = found.conversion
    if depth not in (8, 16) or found.premultiplied or conversion is None:
        described = "" if conversion is None else conversion.description
        raise ImageRejected(
            "unsupported",
            f"its colours are those of {described!r}, which are converted at image.depth = 8, and at 16 "
            "unless they are multiplied by their opacity; convert the file first",
        )
    values = _scaled(found.values, _known_shades(found), np.dtype(np.uint16)).copy()
    grey = found.colors == 1
    converted = conversion.to_samples(values[:, :, 0] if grey else values[:, :, :3], np.uint16)
    values[:, :, : found.colors] = np.atleast_3d(converted)[:, :, : found.colors]
    source = replace(found.source, icc_profile=conversion.description)
    return replace(found, values=values, source=source, shades=(0.0, 65535.0), conversion=None)


def _in_channels(found: FileSamples, wanted: DeepWanted) -> FileSamples:
    """Return the samples with the channels that are wanted."""
    given, colors = found.values.shape[2], found.colors
    if wanted.channels in ("keep", given):
        return found
    alpha = None if found.alpha_at is None else found.values[:, :, found.alpha_at :][:, :, :1]
    if wanted.channels not in (1, 3) or not colors or given > colors + (alpha is not None):
        raise ImageRejected(
            "channels",
            f"it has {given} channels ({found.source.color}), and image.channels is {wanted.channels}; "
            f"set that to {given} or keep",
        )
    values, source = found.values[:, :, :colors], found.source
    if wanted.channels == 3 and colors == 1:
        values = values.repeat(3, axis=2)
    if alpha is not None:
        values = _on_background(values, alpha, found, wanted.background)
        source = replace(source, had_alpha=bool(alpha.min() < _known_shades(found)[1]))
    if wanted.channels == 1 and colors == 3:
        rows = range(0, len(values), _ROWS)
        parts = [_rounded(values[top : top + _ROWS] @ _LUMA[:, np.newaxis], values.dtype) for top in rows]
        values = np.concatenate(parts)
    return replace(found, values=values, source=source, alpha_at=None)


def _on_background(values: Values, alpha: Values, found: FileSamples, background: Color) -> Values:
    """Composite colours on a background, [H, W, 1 or 3], in float64, a few rows at a time."""
    low, high = _known_shades(found)
    behind = np.array(background, np.float64)
    behind = behind if values.shape[2] == 3 else behind @ _LUMA[:, np.newaxis]
    behind = low + behind / 255 * (high - low)
    composited = np.empty_like(values)
    for top in range(0, len(values), _ROWS):
        rows = slice(top, top + _ROWS)
        opacity = (alpha[rows] - low) / (high - low)
        shown = values[rows] * (1 if found.premultiplied else opacity)
        composited[rows] = _rounded(shown + (1 - opacity) * behind, values.dtype)
    return composited


def _in_depth(found: FileSamples, depth: Depth) -> Values:
    """Return uint8, uint16 or float32."""
    values = found.values
    if values.dtype.kind == "f":
        _check_finite(values)
    if depth in (8, 16):
        return _scaled(values, _known_shades(found), np.dtype(f"u{int(depth) // 8}"))
    if depth == "keep" and values.dtype in (np.uint8, np.uint16):
        return values
    with np.errstate(over="ignore"):  # what is too large for float32 is found below
        numbers = values.astype(np.float32)
    _check_finite(numbers)
    return numbers


def _known_shades(found: FileSamples) -> tuple[float, float]:
    if found.shades is None:
        raise ImageRejected(
            "unsupported",
            f"samples of type {found.values.dtype} of which the file does not say which are black and white; "
            "set image.depth to float32 to store the numbers",
        )
    return found.shades


def _scaled(values: Values, shades: tuple[float, float], dtype: np.dtype[Any]) -> Values:
    """Scale samples so that black becomes 0 and white the largest number of ``dtype``."""
    low, high = shades
    white = np.iinfo(dtype).max
    if values.dtype == dtype and shades == (0, white):
        return values
    if values.dtype == np.uint16 and shades == (0, 0xFFFF):
        return (values >> 8).astype(dtype)  # as ``codecs.decode`` does
    if values.dtype in (np.uint8, np.uint16):
        numbers = np.arange(np.iinfo(values.dtype).max + 1)
        table = np.clip(np.rint((numbers - low) * (white / (high - low))), 0, white).astype(dtype)
        return np.asarray(table[values])
    return np.clip(np.rint((values.astype(np.float64) - low) * (white / (high - low))), 0, white).astype(
        dtype
    )


def _check_finite(values: Values) -> None:
    wrong = values.size - np.count_nonzero(np.isfinite(values))
    if wrong:
        nan = np.count_nonzero(np.isnan(values))
        raise ImageRejected(
            "not_finite",
            f"{wrong:,} of {values.size:,} samples are not finite ({nan:,} NaN, {wrong - nan:,} infinite)",
        )


def _rounded(values: Values, dtype: np.dtype[Any]) -> Values:
    return (np.rint(values) if dtype.kind in "iu" else values).astype(dtype)
