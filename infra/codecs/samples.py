"""The samples of a file, and how they become the image that is wanted: bands, colours, channels and depth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.color import Conversion, ToneMapping
from shardmill.infra.codecs.formats import Color, ImageRejected, SourceFacts
from shardmill.infra.preparation import Depth, Hdr, NoData, Pages, Preparation, Window

Values = npt.NDArray[Any]

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
_ROWS = 64  # that are computed in float64 at a time
_BYTES_A_PIXEL = 3  # of memory for the samples of a file, for each pixel that max_pixels allows
WINDOWED = ("tiff", "png", "numpy")  # formats whose values image.window may declare black and white


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
        window: the values that are black and white at a depth of 8 or 16.
        pages: "channels": the channels of all pages of a TIFF or frames of DICOM, one page after the other.
        bands: the channels that are kept, from 1, in this order; none: all.
        no_data: what becomes of pixels without data: "keep", a number in their place, or "mask": 0, and a
            last channel that is 0 there and white elsewhere.
    """

    depth: Depth
    channels: int | Literal["keep"]
    max_pixels: int
    background: Color
    allow_truncated: bool = False
    hdr: Hdr = "tone-map"
    window: Window = "file"
    pages: Pages = "first"
    bands: tuple[int, ...] = ()
    no_data: NoData = "keep"

    @classmethod
    def of(cls, how: Preparation) -> Self:
        """Return what a preparation wants."""
        return cls(
            how.depth, how.channels, how.max_pixels, how.color_behind, how.allow_truncated, how.hdr,
            how.window, how.pages, how.bands, how.no_data,
        )  # fmt: skip


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
        no_data: the value that stands for no data; None if the file tells none. NaN always does.
    """

    values: Values
    source: SourceFacts
    colors: int = 0
    shades: tuple[float, float] | None = None
    alpha_at: int | None = None
    premultiplied: bool = False
    no_data: float | None = None
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


def check_bytes(num_bytes: int, max_pixels: int, of: str = "samples") -> None:
    """Refuse an image whose samples take more memory than ``max_pixels`` allows.

    Args:
        num_bytes: size of the samples (bytes).
        max_pixels: largest image that is decoded.
        of: what the file calls its samples.

    Raises:
        ImageRejected: "too_many_pixels".
    """
    allowed = _BYTES_A_PIXEL * max_pixels
    if num_bytes > allowed:
        raise ImageRejected(
            "too_many_pixels",
            f"its {of} take {num_bytes:,} bytes, and image.max_pixels allows {allowed:,} "
            f"({_BYTES_A_PIXEL} for each pixel)",
        )


def image_of(found: FileSamples, wanted: DeepWanted) -> DeepImage:
    """Bring the samples of a file to the bands, channels and depth that are wanted.

    Raises:
        ImageRejected: they cannot be brought there ("unsupported", "channels", "not_finite").
    """
    found = _with_bands(found, wanted)
    missing = None if wanted.no_data == "keep" else _without_data(found)
    if missing is not None:
        number = 0.0 if isinstance(wanted.no_data, str) else wanted.no_data
        found = replace(found, values=np.where(missing, _number_of(found.values.dtype, number), found.values))
    masked = missing if wanted.no_data == "mask" else None
    found = _in_channels(found, wanted, more=masked is not None)
    pixels = _in_depth(found, wanted.depth)
    return DeepImage(pixels if masked is None else _with_mask(pixels, masked), found.source)


def _with_bands(found: FileSamples, wanted: DeepWanted) -> FileSamples:
    """Return the samples of the channels that are chosen, and their window."""
    if isinstance(wanted.window, tuple) and found.source.format in WINDOWED:
        center, width = wanted.window
        found = replace(found, shades=(center - width / 2, center + width / 2))
    if not wanted.bands:
        return found
    given = found.values.shape[2]
    if max(wanted.bands) > given:
        raise ImageRejected("channels", f"it has {given} channels, and image.bands names {max(wanted.bands)}")
    values = np.ascontiguousarray(found.values[:, :, [band - 1 for band in wanted.bands]])
    colors = len(wanted.bands) if len(wanted.bands) in (1, 3) else 0
    return replace(found, values=values, colors=colors, alpha_at=None, premultiplied=False)


def _without_data(found: FileSamples) -> npt.NDArray[np.bool_]:
    """Return which pixels lack data in one channel or more: bool [H, W, 1]."""
    values = found.values
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)
    if found.no_data is not None and not np.isnan(found.no_data):
        missing |= values == (values.dtype.type(found.no_data) if values.dtype.kind == "f" else found.no_data)
    return np.asarray(missing.any(axis=2, keepdims=True))


def _number_of(dtype: np.dtype[Any], number: float) -> npt.NDArray[Any]:
    if dtype.kind in "iu" and not (
        number.is_integer() and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
    ):
        raise ImageRejected("unsupported", f"image.no_data = {number:g} is no value of its type, {dtype}")
    return np.array(number).astype(dtype)


def _with_mask(pixels: Values, missing: npt.NDArray[np.bool_]) -> Values:
    """Return pixels that are 0 where there is no data, with a last channel that tells where."""
    white = 1 if pixels.dtype.kind == "f" else np.iinfo(pixels.dtype).max
    mask = np.where(missing, 0, white).astype(pixels.dtype)
    return np.concatenate([np.where(missing, np.zeros(1, pixels.dtype), pixels), mask], 2)


def in_srgb(found: FileSamples, depth: Depth) -> FileSamples:
    """Convert shades to sRGB, at 16 bits. Numbers are not converted."""
    conversion = found.conversion
    if conversion is None:
        return found
    if depth not in (8, 16) or found.premultiplied:
        raise ImageRejected(
            "unsupported",
            f"its colours are those of {conversion.description!r}, which are converted at image.depth = 8, "
            "and at 16 unless they are multiplied by their opacity; convert the file first",
        )
    values = _scaled(found.values, _known_shades(found), np.dtype(np.uint16)).copy()
    grey = found.colors == 1
    converted = conversion.to_samples(values[:, :, 0] if grey else values[:, :, :3], np.uint16)
    values[:, :, : found.colors] = np.atleast_3d(converted)[:, :, : found.colors]
    source = replace(found.source, icc_profile=conversion.description)
    return replace(found, values=values, source=source, shades=(0.0, 65535.0), conversion=None)


def _in_channels(found: FileSamples, wanted: DeepWanted, more: int) -> FileSamples:
    """Return the samples with the channels that are wanted, less ``more`` that are added afterwards."""
    given, colors = found.values.shape[2], found.colors
    if wanted.channels == "keep" or wanted.channels == given + more:
        return found
    number = wanted.channels - more
    alpha = None if found.alpha_at is None else found.values[:, :, found.alpha_at :][:, :, :1]
    if number not in (1, 3) or not colors or given > colors + (alpha is not None):
        with_mask = " and its mask of no data" if more else ""
        raise ImageRejected(
            "channels",
            f"it has {given} channels ({found.source.color}){with_mask}, and image.channels is "
            f"{wanted.channels}; set that to {given + more} or keep",
        )
    values, source = found.values[:, :, :colors], found.source
    if number == 3 and colors == 1:
        values = values.repeat(3, axis=2)
    if alpha is not None:
        values = _on_background(values, alpha, found, wanted.background)
        source = replace(source, had_alpha=bool(alpha.min() < _known_shades(found)[1]))
    if number == 1 and colors == 3:
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
            "name them with image.window = [CENTRE, WIDTH], or set image.depth to float32",
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
