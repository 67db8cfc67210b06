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

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import imagecodecs
import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import decode, lacking_decoder
from shardmill.infra.codecs.color import Choice, Statement, choose_conversion
from shardmill.infra.codecs.formats import (
    FORMATS,
    Color,
    DecodedImage,
    ImageRejected,
    SourceFacts,
    Wanted,
    apply_orientation,
    check_format,
    check_pixels,
)
from shardmill.infra.codecs.jpeg.header import read_header
from shardmill.infra.codecs.numpy_files import name_of, read_numpy, shades_of
from shardmill.infra.codecs.pages import InMemory, count_pages, page_of
from shardmill.infra.codecs.samples import DeepWanted, FileSamples, Values
from shardmill.infra.codecs.structure.exif import read_exif
from shardmill.infra.codecs.structure.geotiff import no_data_in
from shardmill.infra.codecs.structure.heif_colors import heif_colors
from shardmill.infra.codecs.structure.png_chunks import PngFile, can_hold_all_rows, is_undamaged, read_png
from shardmill.infra.codecs.tiff.decode import TiffSamples, black_and_white, read_strips
from shardmill.infra.codecs.tiff.kinds import ASSOCIATED, INT, UINT, WHITE_IS_ZERO, check_samples, is_shades
from shardmill.infra.codecs.tiff.page import read_page
from shardmill.infra.preparation import Depth, Hdr

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
_ROWS = 64  # that are computed in float64 at a time
_WINDOWED = ("tiff", "png", "numpy")  # formats whose values image.window may declare black and white
_BYTES_A_PIXEL = 3  # of memory for the samples, for each pixel that max_pixels allows
_DEEP_COLOR = re.compile(r"(\d+)-bit| float")


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
    found = _with_bands(_read(data, wanted), wanted)
    missing = None if wanted.no_data == "keep" else _without_data(found)
    if missing is not None:
        number = 0.0 if isinstance(wanted.no_data, str) else wanted.no_data
        found = replace(found, values=np.where(missing, _number_of(found.values.dtype, number), found.values))
    masked = missing if wanted.no_data == "mask" else None
    found = _in_channels(found, wanted, more=masked is not None)
    pixels = _in_depth(found, wanted.depth)
    return DeepImage(pixels if masked is None else _with_mask(pixels, masked), found.source)


def _read(data: bytes, wanted: DeepWanted) -> FileSamples:
    """Read the samples of a file, with the channels of all of its pages if these are wanted."""
    form = check_format(data)
    reader = _READERS.get(form, _read_common)
    if wanted.pages != "channels" or form not in ("tiff", "dicom"):
        return _in_srgb(reader(data, wanted), wanted.depth)
    file = InMemory(data)
    pages = (reader(page_of(data, number), wanted) for number in range(count_pages(file)[1]))
    parts = [_in_srgb(page, wanted.depth) for page in pages]
    kinds = sorted({f"{part.values.shape[1]}×{part.values.shape[0]} {part.source.color}" for part in parts})
    if len(kinds) > 1:
        raise ImageRejected("unsupported", f"its pages differ: {', '.join(kinds[:4])}")
    first = parts[0]
    if len(parts) == 1:
        return first
    shades = first.shades if all(part.shades == first.shades for part in parts) else None
    values = np.concatenate([part.values for part in parts], 2)
    _check_bytes(values.nbytes, wanted.max_pixels)
    color = f"{len(parts)} pages, {first.source.color}"
    return FileSamples(values, replace(first.source, color=color), shades=shades, no_data=first.no_data)


def _with_bands(found: FileSamples, wanted: DeepWanted) -> FileSamples:
    """Return the samples of the channels that are chosen, and their window."""
    if isinstance(wanted.window, tuple) and found.source.format in _WINDOWED:
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
    """Return the pixels of which a channel has no data: bool [H, W, 1]."""
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


def common_channels(data: bytes, wanted: DeepWanted) -> int | None:
    """Return 1 or 3 if the image that is wanted has 8 bits in grey or RGB, where the file decides; else None.

    Then ``codecs.decode`` makes it, which converts colours to sRGB.

    Raises:
        ImageRejected: the file is damaged, or has more than 8 bits that are wanted and cannot be read.
    """
    of_samples = wanted.pages == "channels" or wanted.bands or wanted.no_data != "keep"
    if of_samples or wanted.depth not in (8, "keep") or wanted.channels not in (1, 3, "keep"):
        return None
    if isinstance(wanted.window, tuple) and check_format(data) in _WINDOWED:
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
    if found == "numpy":
        return 9, 0
    if found == "dicom":
        bits, channels = _dicom().bits_and_channels(data)
        return (8 if wanted.depth == 8 or (bits <= 8 and channels == 3) else 9), channels
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
    values, shades, no_data = read.samples, _shades_of_tiff(read), no_data_in(read_exif(data).values)
    if kind.photometric == WHITE_IS_ZERO:
        white = np.iinfo(values.dtype).max >> (8 * values.itemsize - kind.bits[0])
        values = values.copy()
        values[:, :, 0] = white - values[:, :, 0]
        no_data = None if no_data is None else white - no_data
    choice = _choice((page.icc,) if page.icc else (), colors, wanted.hdr)
    source = read.facts(note=choice.note)
    others = kind.samples - colors - (read.alpha_at is not None)
    if others:
        name, _, more = source.color.partition(" ")
        source = replace(source, color=f"{name}+{others} {more}".rstrip())
    return FileSamples(
        apply_orientation(values, page.orientation), source, colors, shades, read.alpha_at,
        ASSOCIATED in kind.extra, no_data, choice.conversion,
    )  # fmt: skip


def _shades_of_tiff(read: TiffSamples) -> tuple[float, float] | None:
    if read.page.kind.sample_format == INT:  # the tags alone can tell
        return read.page.declared_range
    try:
        return black_and_white(read.samples, read.page)
    except ImageRejected:
        return None


def _dicom() -> Any:
    """Return the module that reads DICOM, which needs an extra."""
    try:
        return importlib.import_module("shardmill.infra.codecs.dicom.decode")
    except ModuleNotFoundError as error:
        raise lacking_decoder("dicom", error) from error


def _read_dicom(data: bytes, wanted: DeepWanted) -> FileSamples:
    found: FileSamples
    found, profile = _dicom().dicom_samples(data, wanted)
    choice = _choice((profile,) if profile else (), found.colors, wanted.hdr)
    return replace(found, source=replace(found.source, note=choice.note), conversion=choice.conversion)


def _read_numpy(data: bytes, wanted: DeepWanted) -> FileSamples:
    values = read_numpy(data, wanted.max_pixels)
    height, width, channels = values.shape
    source = SourceFacts("numpy", name_of(values), height, width)
    shades = shades_of(values)
    values = values.view(np.uint8) if values.dtype.kind == "b" else values
    return FileSamples(values, source, channels if channels in (1, 3) else 0, shades)


def decode_numpy(data: bytes, wanted: Wanted) -> DecodedImage:
    """Decode a NumPy array to 8 bits of grey or RGB.

    Raises:
        ImageRejected: as for ``decode_deep``.
    """
    deep = DeepWanted(8, wanted.channels, wanted.max_pixels, wanted.background)
    found = decode_deep(data, deep)
    return DecodedImage(found.pixels, found.source)


# A reader of each format whose files may hold other samples than 8 bits of grey or RGB.
_READERS: Final[dict[str, Callable[[bytes, DeepWanted], FileSamples]]] = {
    "png": _read_png,
    "tiff": _read_tiff,
    "dicom": _read_dicom,
    "numpy": _read_numpy,
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
    """Return the samples with the channels that are wanted, but for so many more that follow."""
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
