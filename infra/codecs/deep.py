"""Decode images to other samples than 8 bits of grey or RGB: deeper ones, and any number of channels.

A file is read to its samples (``FileSamples``), which are then brought to the channels and the depth that
are wanted. Depth 8 and 16 are shades: black is 0, white 255 or 65,535. "float32" and "keep" are the numbers
of the file, which are not scaled. Grey whose white is zero is inverted. "keep" stores unsigned numbers of
up to 8 bits as uint8, up to 16 bits as uint16, and all others as float32.

PNG and TIFF are read here. Files of the other formats, and TIFFs whose samples are no shades (palettes, inks,
YCbCr, Lab, fax, JPEG), are 8 bits of grey or RGB, as ``codecs.decode`` gives them: in sRGB and opaque. Such a
file of more bits is refused, because decoding it would lose them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import imagecodecs
import numpy as np

from shardmill.infra.codecs import decode, lacking_decoder
from shardmill.infra.codecs.color import Choice, Statement, choose_conversion
from shardmill.infra.codecs.formats import (
    FORMATS,
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
from shardmill.infra.codecs.pages import InMemory, count_pages
from shardmill.infra.codecs.pillow.raster import is_unscaled
from shardmill.infra.codecs.samples import (
    WINDOWED,
    DeepImage,
    DeepWanted,
    FileSamples,
    Values,
    check_bytes,
    image_of,
    in_srgb,
)
from shardmill.infra.codecs.structure.exif import read_exif
from shardmill.infra.codecs.structure.geotiff import no_data_in
from shardmill.infra.codecs.structure.heif_colors import heif_colors
from shardmill.infra.codecs.structure.png_chunks import (
    PngFile,
    can_hold_all_rows,
    chunks,
    is_undamaged,
    read_png,
)
from shardmill.infra.codecs.tiff.decode import TiffSamples, black_and_white, read_strips
from shardmill.infra.codecs.tiff.kinds import ASSOCIATED, INT, UINT, WHITE_IS_ZERO, check_samples, is_shades
from shardmill.infra.codecs.tiff.page import read_page
from shardmill.infra.preparation import Hdr

_DEEP_COLOR = re.compile(r"(\d+)-bit| float")


def decode_deep(data: bytes, wanted: DeepWanted) -> DeepImage:
    """Decode an image to the samples that are wanted.

    Raises:
        ImageRejected: the file is damaged or too large, is of a kind that is not read ("unsupported"), has
            other channels than are wanted ("channels"), or numbers that are not finite ("not_finite").
    """
    return image_of(_read(data, wanted), wanted)


def _read(data: bytes, wanted: DeepWanted) -> FileSamples:
    """Read the samples of a file, with the channels of all of its pages if these are wanted."""
    form = check_format(data)
    reader = _READERS.get(form, _read_common)
    if wanted.pages != "channels" or form not in ("tiff", "dicom"):
        return in_srgb(reader(data, wanted), wanted.depth)
    file = InMemory(data)
    pages = (reader(file.page(number), wanted) for number in range(count_pages(file)[1]))
    parts = [in_srgb(page, wanted.depth) for page in pages]
    kinds = sorted({f"{part.values.shape[1]}×{part.values.shape[0]} {part.source.color}" for part in parts})
    if len(kinds) > 1:
        raise ImageRejected("unsupported", f"its pages differ: {', '.join(kinds[:4])}")
    first = parts[0]
    if len(parts) == 1:
        return first
    shades = first.shades if all(part.shades == first.shades for part in parts) else None
    values = np.concatenate([part.values for part in parts], 2)
    check_bytes(values.nbytes, wanted.max_pixels)
    color = f"{len(parts)} pages, {first.source.color}"
    return FileSamples(values, replace(first.source, color=color), shades=shades, no_data=first.no_data)


def common_channels(data: bytes, wanted: DeepWanted) -> tuple[int, DecodedImage | None] | None:
    """Return the channels, 1 or 3, of an image that is to be 8 bits of grey or RGB; None for another image.

    ``codecs.decode`` makes the former, in sRGB. The file decides where its depth or channels are kept. Where
    its header does not tell, it is decoded, and the image is returned too.

    Raises:
        ImageRejected: the file is damaged, or more than 8 bits are wanted of it and cannot be read.
    """
    of_samples = wanted.pages == "channels" or wanted.bands or wanted.no_data != "keep"
    if of_samples or wanted.depth not in (8, "keep") or wanted.channels not in (1, 3, "keep"):
        return None
    if isinstance(wanted.window, tuple) and check_format(data) in WINDOWED:
        return None
    if wanted.depth == 8 and wanted.channels != "keep":
        return wanted.channels, None
    if (described := _described(data, wanted)) is not None:
        of_8_bits, channels = described
        channels = channels if wanted.channels == "keep" else wanted.channels
        return (channels, None) if channels in (1, 3) and (of_8_bits or wanted.depth == 8) else None
    decoded = _decode_common(data, wanted, check_bits=wanted.depth != 8)
    if wanted.channels == "keep" and _is_grey(decoded):
        decoded = replace(decoded, pixels=decoded.pixels[:, :, :1])
    return decoded.pixels.shape[2], decoded


def _described(data: bytes, wanted: DeepWanted) -> tuple[bool, int] | None:
    """Return whether 8 bits hold the samples, and the channels; None if the header does not tell."""
    found = check_format(data)
    if found == "png":
        png = read_png(data)
        return png.bit_depth <= 8, png.channels
    if found == "tiff":
        kind = read_page(data, wanted.max_pixels).kind
        if is_shades(kind):
            return kind.sample_format == UINT and max(kind.bits) <= 8, kind.samples
    if found == "numpy":
        return False, 0
    if found == "dicom":
        bits, channels = _dicom().bits_and_channels(data)
        return bits <= 8 and channels == 3, channels
    if found == "jpeg":
        return True, 1 if read_header(data).color_space == "grey" else 3
    return None


def _decode_common(data: bytes, wanted: DeepWanted, *, check_bits: bool) -> DecodedImage:
    """Decode a file of 8 bits of grey or RGB, with its opacity laid on the background."""
    decoded = decode(
        data,
        1 if wanted.channels == 1 else 3,
        max_pixels=wanted.max_pixels,
        background=wanted.background,
        allow_truncated=wanted.allow_truncated,
        hdr=wanted.hdr,
    )
    source = decoded.source
    if check_bits:
        _check_bits(heif_colors(data).bits if source.format in ("avif", "heif") else 8, source)
    return decoded


def _is_grey(decoded: DecodedImage) -> bool:
    source = decoded.source
    return source.color.startswith("grey") and not (source.icc_profile or source.had_alpha)


def _read_common(data: bytes, wanted: DeepWanted) -> FileSamples:
    """Read a file of 8 bits of grey or RGB, with its opacity laid on the background."""
    decoded = _decode_common(data, replace(wanted, channels="keep"), check_bits=True)
    pixels = decoded.pixels[:, :, :1] if _is_grey(decoded) else decoded.pixels
    return FileSamples(pixels, decoded.source, pixels.shape[2], (0.0, 255.0))


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
    check_bytes(png.height * png.width * 4 * (2 if png.bit_depth > 8 else 1), wanted.max_pixels)
    if not is_undamaged(png):
        raise ImageRejected("corrupt", "not a sound PNG file: its pixel data does not match its checksums")
    if not png.ended or not can_hold_all_rows(png):
        raise ImageRejected("truncated", "the PNG file ends early")
    if not any(name == b"IDAT" for name, _, _ in chunks(png.picture)):  # png_decode raises random bytes
        raise ImageRejected("corrupt", "not a sound PNG file: it holds no pixel data")
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
    """Return the sample that is white."""
    bits = png.significant_bits
    largest = int(np.iinfo(values.dtype).max)
    if values.dtype != np.uint16 or values.shape[2] not in (1, 3):
        return float(largest)
    return float((1 << bits) - 1 if is_unscaled(values, bits) else largest)


def _read_tiff(data: bytes, wanted: DeepWanted) -> FileSamples:
    page = read_page(data, wanted.max_pixels)
    kind = page.kind
    if not is_shades(kind):
        return _read_common(data, wanted)
    check_samples(kind)
    check_bytes(page.height * page.width * kind.samples * max(1, kind.bits[0] // 8), wanted.max_pixels)
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


# Formats whose files may have more than 8 bits or other channels than grey and RGB, with their readers.
_READERS: Final[dict[str, Callable[[bytes, DeepWanted], FileSamples]]] = {
    "png": _read_png,
    "tiff": _read_tiff,
    "dicom": _read_dicom,
    "numpy": _read_numpy,
}


def _choice(stated: Sequence[Statement], colors: int, hdr: Hdr) -> Choice:
    return choose_conversion(stated, "L" if colors == 1 else "RGB", hdr)
