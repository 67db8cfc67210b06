"""Bring the samples of a TIFF to 8 bits and sRGB, or hand them over as they are in the file.

White is the largest sample of the depth that the file declares, not the largest sample in the picture. So a
dark picture of a scene stays dark.

- Unsigned samples state their bits (white is 4,095 with 12 bits). Some files of 16 bits hold fewer and
  declare it by a MaxSampleValue of the form 2^n - 1.
- Floating-point samples run from 0 to 1, or between SMinSampleValue and SMaxSampleValue.
- Signed 16-bit and all 32-bit integers need those two tags. Without them the white sample is not known.

Samples that use all 16 bits keep their high byte, as in all common decoders, TensorFlow's included. That is
within one level of the exact value. Signed samples of 8 bits are read as unsigned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardmill.infra.codecs.formats import (
    ImageRejected,
    Picture,
    Pixels,
    SourceFacts,
    Wanted,
    apply_orientation,
    band_rows,
)
from shardmill.infra.codecs.pillow.raster import composited
from shardmill.infra.codecs.tiff.kinds import (
    ASSOCIATED,
    BLACK_IS_ZERO,
    CIE_LAB,
    COLORS,
    COMPRESSIONS,
    FAX,
    FLOAT,
    PALETTE,
    RGB,
    UINT,
    UNASSOCIATED,
    WHITE_IS_ZERO,
    YCBCR,
    check_kind,
)
from shardmill.infra.codecs.tiff.page import Page, in_short_strips, read_page
from shardmill.infra.codecs.tiff.strips import Samples, decode_strips, sample_type

_FULL_RANGE = (0.0, 255.0, 128.0, 255.0, 128.0, 255.0)
_BT601 = (0.299, 0.587, 0.114)


@dataclass(frozen=True, slots=True)
class TiffSamples:
    """The samples of a picture as stored in the file.

    Attributes:
        page: its tags.
        samples: [H, W, samples].
        salvaged: the file ends early.
    """

    page: Page
    samples: Samples
    salvaged: bool = False

    @property
    def colors(self) -> int:
        """The number of samples that are the colour."""
        return COLORS[self.page.kind.photometric].channels

    @property
    def alpha_at(self) -> int | None:
        """The number of the sample that is the opacity, or None."""
        color = self.colors
        for number, meaning in enumerate(self.page.kind.extra[: self.page.kind.samples - color]):
            if meaning in (ASSOCIATED, UNASSOCIATED):
                return color + number
        return None

    def facts(self, icc_profile: str | None = None, had_alpha: bool = False, note: str = "") -> SourceFacts:
        """Return the facts about the file."""
        kind, page = self.page.kind, self.page
        bits, name = kind.bits[0], COLORS[kind.photometric].name
        if self.alpha_at is not None:
            name = "RGBA" if name == "RGB" else f"{name}+alpha"
        deep = (8 < bits <= 16 and kind.sample_format != FLOAT) or (bits == 1 and name == "grey")
        if deep:
            name = f"{name} {bits}-bit"
        elif kind.sample_format == FLOAT or bits > 16:
            name = f"{name} float" if kind.sample_format == FLOAT else f"{name} 32-bit"
        return SourceFacts(
            "tiff",
            name,
            page.height,
            page.width,
            page.orientation,
            icc_profile,
            had_alpha,
            self.salvaged,
            note=note,
        )


def decode_tiff(data: bytes, wanted: Wanted) -> Picture:
    """Decode the first page of a TIFF that is neither a thumbnail nor a mask.

    Raises:
        ImageRejected: the file is damaged, too large, or of a kind that is not read.
    """
    page = read_page(data, wanted.max_pixels)
    check_kind(page.kind)
    if comes_in_bands(page) and not wanted.allow_truncated:
        page = in_short_strips(page, len(data))
        parts: Iterator[TiffSamples] = (
            TiffSamples(page, samples) for samples in _lines(data, page, wanted.max_pixels)
        )
    else:
        parts = iter((read_strips(data, page, wanted.max_pixels, wanted.allow_truncated),))
    told: tuple[str | None, bool, str] = (None, False, "")
    stated, salvaged = (page.icc,) if page.icc else (), False

    def bands() -> Iterator[Pixels]:
        nonlocal told, salvaged
        for part in parts:
            white, length, salvaged = _white(part), band_rows(page.width), part.salvaged
            for top in range(0, len(part.samples), length):
                rows = replace(part, samples=part.samples[top : top + length])
                flat = composited(*_picture(rows, white), stated, wanted, partial(_deep_samples, rows))
                told = flat.icc_profile, told[1] or flat.had_alpha, flat.note
                yield flat.pixels(wanted.channels)

    def facts() -> SourceFacts:
        return TiffSamples(page, np.empty((0, 0, 0)), salvaged).facts(*told)

    return Picture(page.height, page.width, page.orientation, bands(), facts)


def comes_in_bands(page: Page) -> bool:
    """Tell whether rows can be decoded without the others.

    Fax is compared with another decoder as a whole, and where no tag says which floating-point samples are
    black and white, all samples decide. A file that is to be refused is decoded as a whole before that.
    """
    kind = page.kind
    if kind.compression in FAX or (kind.sample_format == FLOAT and page.declared_range is None):
        return False
    blank = TiffSamples(page, np.zeros((1, 1, kind.samples), sample_type(page)))
    try:
        _picture(blank, _white(blank))
    except ImageRejected:
        return False
    return True


def _lines(data: bytes, page: Page, max_pixels: int) -> Iterator[Samples]:
    """Yield the samples of as many lines of strips at a time as make a band."""
    at_a_time = max(1, band_rows(page.width) // page.rows)
    for first in range(0, page.in_a_plane // page.across, at_a_time):
        lines = range(first, min(first + at_a_time, page.in_a_plane // page.across))
        yield decode_strips(data, page, max_pixels, salvage=False, lines=lines)


def decode_tiff_samples(data: bytes, max_pixels: int, in_color: bool) -> tuple[npt.NDArray[Any], SourceFacts]:
    """Decode the samples of a file, upright and otherwise as they are in it.

    Args:
        data: the file.
        max_pixels: largest picture that is decoded.
        in_color: return the colours of every file, also of one with a palette.

    Returns:
        uint8 or uint16 [H, W, 1], or uint8 [H, W, 3] of a file in colour, and the facts about the file.

    Raises:
        ImageRejected: the file is damaged, too large, of a kind that is not read, or its samples are no such
            numbers ("unsupported") or were compressed with a loss ("lossy_mask").
    """
    page = read_page(data, max_pixels)
    kind = page.kind
    check_kind(kind)
    read = read_strips(data, page, max_pixels, allow_truncated=False)
    if COMPRESSIONS[kind.compression].lossy or kind.photometric == YCBCR:
        raise ImageRejected("lossy_mask", "a TIFF whose compression changes pixels")
    bits = kind.bits[0]
    name, grey = COLORS[kind.photometric].name, COLORS[kind.photometric].channels == 1
    if kind.sample_format == FLOAT or (not grey and name != "RGB"):
        raise ImageRejected("unsupported", f"its pixels are neither whole numbers nor RGB ({kind})")
    if not grey and bits > 8:
        raise ImageRejected("unsupported", f"colours of {bits} bits; 8 bits are read")
    if read.alpha_at is not None and (read.samples[:, :, read.alpha_at] != (1 << bits) - 1).any():
        raise ImageRejected("unsupported", "it has transparent pixels, which have no certain class")
    if grey and not (in_color and bits <= 8):
        samples = _numbers(read.samples[:, :, :1])
    else:
        color, _ = _picture(read, _white(read))
        samples = np.asarray(color.convert("RGB"))
    return apply_orientation(samples, page.orientation), read.facts()


def _numbers(samples: Samples) -> npt.NDArray[Any]:
    if samples.dtype == np.int8:
        return samples.view(np.uint8)
    if samples.size and not 0 <= samples.min() <= samples.max() <= 0xFFFF:
        raise ImageRejected("unsupported", "its values are not all between 0 and 65,535")
    return samples if samples.dtype == np.uint8 else samples.astype(np.uint16)


def read_strips(data: bytes, page: Page, max_pixels: int, allow_truncated: bool) -> TiffSamples:
    """Decode the samples of a page. ``allow_truncated`` leaves those zero that the file lacks at its end.

    Raises:
        ImageRejected: "truncated" or "corrupt".
    """
    try:
        return TiffSamples(page, decode_strips(data, page, max_pixels, salvage=False))
    except ImageRejected as rejected:
        if not allow_truncated or rejected.reason != "truncated":
            raise
    return TiffSamples(page, decode_strips(data, page, max_pixels, salvage=True), salvaged=True)


def _white(read: TiffSamples) -> tuple[float, float]:
    """Return what ``black_and_white`` says of the colours; anything for colours that are no shades."""
    raw = read.page.kind.photometric == YCBCR and not COMPRESSIONS[read.page.kind.compression].lossy
    if raw or read.page.kind.photometric in (PALETTE, CIE_LAB):
        return 0.0, 1.0
    return black_and_white(read.samples[:, :, : read.colors], read.page)


def _picture(read: TiffSamples, white: tuple[float, float]) -> tuple[Image.Image, Image.Image | None]:
    """Return the colours (mode "L", "RGB", "CMYK" or "LAB") and the opacity ("L", or None)."""
    page, kind = read.page, read.page.kind
    channels = COLORS[kind.photometric].channels
    alpha = None
    if read.alpha_at is not None:
        alpha = _shades(read.samples[:, :, read.alpha_at], (0.0, float((1 << kind.bits[0]) - 1)))
    if kind.photometric == PALETTE:
        color = _colors_of_palette(read.samples[:, :, 0], page)
    elif kind.photometric == YCBCR and not COMPRESSIONS[kind.compression].lossy:
        color = _rgb_of_ycbcr(read.samples, page)
    elif kind.photometric == CIE_LAB:
        color = read.samples
    else:
        color = _shades(read.samples[:, :, :channels], white)
        color = 255 - color if kind.photometric == WHITE_IS_ZERO else color
    size = (read.samples.shape[1], read.samples.shape[0])
    mode = {1: "L", 4: "CMYK"}.get(color.shape[2], "LAB" if kind.photometric == CIE_LAB else "RGB")
    image = Image.frombytes(mode, size, np.ascontiguousarray(color).tobytes())
    if alpha is None:
        return image, None
    opacity = Image.fromarray(np.ascontiguousarray(alpha))
    if ASSOCIATED in kind.extra and mode in ("L", "RGB"):
        together = Image.merge({"L": "La", "RGB": "RGBa"}[mode], (*image.split(), opacity))
        image = together.convert({"L": "LA", "RGB": "RGBA"}[mode]).convert(mode)
    return image, opacity


def _deep_samples(read: TiffSamples, _mode: str) -> npt.NDArray[np.uint16] | None:
    """Return shades in 16 bits, [H, W] or [H, W, 3], for converting colours; None for 8 bits or inks."""
    kind, channels = read.page.kind, read.colors
    is_shade = kind.photometric in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB)
    if not is_shade or kind.bits[0] <= 8 or ASSOCIATED in kind.extra:
        return None
    samples = read.samples[:, :, 0] if channels == 1 else read.samples[:, :, :channels]
    low, high = black_and_white(samples, read.page)
    if samples.dtype != np.uint16 or (low, high) != (0, 0xFFFF):
        scaled = np.clip((samples.astype(np.float32) - low) * np.float32(65535 / (high - low)), 0, 65535)
        samples = np.rint(np.nan_to_num(scaled)).astype(np.uint16)
    return 0xFFFF - samples if kind.photometric == WHITE_IS_ZERO else samples


def black_and_white(samples: Samples, page: Page) -> tuple[float, float]:
    """Return the samples that are black and white, or the other way round where white is zero.

    Raises:
        ImageRejected: the file does not say ("unsupported").
    """
    kind = page.kind
    (bits,) = kind.bits
    if (kind.sample_format == UINT and bits <= 16) or bits == 8:
        declared = page.max_sample
        fewer = bits == 16 and declared > 0xFF and declared & (declared + 1) == 0
        return 0.0, float(declared if fewer else (1 << bits) - 1)
    if page.declared_range is not None:
        return page.declared_range
    if kind.sample_format == FLOAT and samples.size and 0 <= samples.min() <= samples.max() <= 1:
        return 0.0, 1.0
    words = (
        "floating-point samples beyond 0 to 1" if kind.sample_format == FLOAT else "signed or 32-bit samples"
    )
    raise ImageRejected(
        "unsupported",
        f"{words}, and no tag (SMinSampleValue, SMaxSampleValue) says which are black and white",
    )


def _shades(samples: Samples, white: tuple[float, float]) -> Pixels:
    """Bring samples to 8 bits."""
    low, high = white
    if samples.dtype.itemsize == 1 and samples.dtype.kind in "iu" and (low, 255 % high) == (0, 0):
        return samples.view(np.uint8) * np.uint8(255 // high)
    if samples.dtype == np.uint16 and (low, high) == (0, 0xFFFF):
        return (samples >> 8).astype(np.uint8)
    if samples.dtype == np.uint16:
        return _shades(np.arange(1 << 16, dtype=np.int32), white).take(samples)
    scaled = np.clip((samples.astype(np.float64) - low) * (255 / (high - low)), 0, 255)
    return np.rint(np.nan_to_num(scaled)).astype(np.uint8)


def _colors_of_palette(indexes: Samples, page: Page) -> Pixels:
    if page.palette is None or page.palette.ndim != 2 or page.palette.shape[1] < 1 << page.kind.bits[0]:
        raise ImageRejected("corrupt", "not a sound TIFF file: its palette is missing or too short")
    # Some writers give 8 bits of each colour where the specification asks for 16.
    palette = page.palette if page.palette.max() < 256 else page.palette >> 8
    return np.take(palette.astype(np.uint8).T, indexes, axis=0)


def _rgb_of_ycbcr(samples: Samples, page: Page) -> Pixels:
    """Convert by the weights and ranges that the file states (TIFF 6.0, section 21)."""
    red, green, blue = page.luma or _BT601
    reference = np.reshape(page.reference or _FULL_RANGE, (3, 2))
    low, span = reference[:, 0], reference[:, 1] - reference[:, 0]
    if not green or not span.all():
        raise ImageRejected("corrupt", "not a sound TIFF file: its colours have no weights or no range")
    y, cb, cr = np.moveaxis((samples - low) * (255.0, 127.0, 127.0) / span, 2, 0)
    r, b = y + cr * (2 - 2 * red), y + cb * (2 - 2 * blue)
    g = (y - red * r - blue * b) / green
    colors: Pixels = np.clip(np.rint(np.dstack((r, g, b))), 0, 255).astype(np.uint8)
    return colors
