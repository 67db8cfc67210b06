"""Bring the picture of a DICOM file to 8 bits and sRGB.

Stored values become modality values (rescale slope and intercept, or a table), these become shades by a
window, and MONOCHROME1 is inverted (PS3.3 C.7.6.3, C.11.1 and C.11.2; PS3.4 N.2). The window is the first
one of the file, its table, another one by choice, or the whole range of the bits that the file declares.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pydicom
from PIL import Image
from pydicom.pixels import apply_color_lut, apply_modality_lut, apply_voi

from shardmill.infra.codecs.dicom.frames import stored_values
from shardmill.infra.codecs.formats import (
    GROUP_OF_FILE,
    DecodedImage,
    ImageRejected,
    Pixels,
    SourceFacts,
    Wanted,
    check_pixels,
)
from shardmill.infra.codecs.pillow.decode import no_warnings
from shardmill.infra.codecs.pillow.raster import composited
from shardmill.infra.codecs.samples import DeepWanted, FileSamples
from shardmill.infra.errors import ShardmillError, UnusableInput
from shardmill.infra.preparation import Window

Values = npt.NDArray[np.float64]

# It logs what is odd about a file, with values that may name a patient.
logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)

_GREY = ("MONOCHROME1", "MONOCHROME2")
_INVERTED, _PALETTE = "MONOCHROME1", "PALETTE COLOR"
_COLORS = {
    **dict.fromkeys(_GREY, "grey"), _PALETTE: "palette", "RGB": "RGB",
    **dict.fromkeys(("YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT"), "YCbCr"),
}  # fmt: skip
NO_PICTURE = "no_picture"
_MOST_OF_8_BITS = 255
_TABLE_BYTES = 2  # the most of a sample that is converted by a table of all values


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame as it is stored.

    Attributes:
        file: data elements of the file.
        shared: its functional groups that say how values become shades. Their elements replace the file's.
        stored: integers or floats, [H, W] or [H, W, 3].
        color: its photometric interpretation.
        bits: bits of a stored integer.
    """

    file: Any
    shared: tuple[Any, ...]
    stored: npt.NDArray[Any]
    color: str
    bits: int

    def element(self, name: str) -> Any:
        """Return the value of a data element of the frame, or else of the file; None if there is none."""
        found = (part.get(name) for part in (*self.shared, self.file))
        return next((value for value in found if value not in (None, "")), None)

    @property
    def profile(self) -> bytes | None:
        """The ICC profile of a file in colour."""
        found = self.file.get("ICCProfile") if self.color not in _GREY else None
        return found if isinstance(found, bytes) else None

    def facts(self) -> SourceFacts:
        """Return the facts about the file."""
        height, width = self.stored.shape[:2]
        series = self.file.get("SeriesInstanceUID")
        return SourceFacts("dicom", _color_name(self), height, width, group=_group(series))

    def part_with(self, name: str) -> Any:
        """Return the data elements, of the frame or of the file, among which ``name`` is."""
        return next((part for part in (*self.shared, self.file) if name in part), None)


def decode_dicom(data: bytes, wanted: Wanted) -> DecodedImage:
    """Decode the picture of a DICOM file.

    Raises:
        ImageRejected: the file is damaged, too large, of a kind that is not read, or has no picture.
    """
    with own_errors():
        frame = _read(data, wanted.max_pixels)
        color, profile, facts = _colors(frame, wanted.window), frame.profile, frame.facts()
    flat = composited(Image.fromarray(color), None, (profile,) if profile else (), wanted)
    facts = replace(facts, icc_profile=flat.icc_profile, note=flat.note)
    return DecodedImage(flat.pixels(wanted.channels), facts)


def dicom_samples(data: bytes, wanted: DeepWanted) -> tuple[FileSamples, bytes | None]:
    """Return the samples of the picture of a DICOM file, and its ICC profile.

    For a depth of 8 or 16 grey values are shades by the window. Otherwise they are modality values,
    such as Hounsfield units: uint8 or uint16 if that type holds every value that the declared bits allow.
    MONOCHROME1 is inverted within these bits.

    Raises:
        ImageRejected: as for ``decode_dicom``.
    """
    with own_errors():
        frame = _read(data, wanted.max_pixels)
        stored, facts = frame.stored, frame.facts()
        if frame.color == _PALETTE:
            return FileSamples(_colors_of_palette(frame), facts, 3, (0.0, 255.0)), frame.profile
        if frame.color not in _GREY:
            if stored.dtype.kind != "u":
                raise ImageRejected("unsupported", "a DICOM file whose colours are signed or floating-point")
            return FileSamples(stored, facts, 3, (0.0, float((1 << frame.bits) - 1))), frame.profile
        if wanted.depth in (8, 16):
            shades = _shades_of(frame, wanted.window, np.dtype(f"u{int(wanted.depth) // 8}"))
            return FileSamples(
                shades[:, :, np.newaxis], facts, 1, (0.0, float(np.iinfo(shades.dtype).max))
            ), None
        return FileSamples(_numbers(frame)[:, :, np.newaxis], facts, 1), None


def bits_and_channels(data: bytes) -> tuple[int, int]:
    """Return the bits of a value and the channels, 1 or 3, of a DICOM file, by its header.

    Raises:
        ImageRejected: the file is damaged.
    """
    with own_errors():
        file = _header(data)
        color = file.get("PhotometricInterpretation")
        return (8 if color == _PALETTE else int(file.get("BitsStored", 32))), 1 if color in _GREY else 3


def bytes_of_values(data: bytes) -> int:
    """Return the length of the values of a frame before they are compressed, by its header (bytes).

    Raises:
        ImageRejected: the file is damaged.
    """
    with own_errors():
        file = _header(data)
        samples = int(file.Rows) * int(file.Columns) * int(file.SamplesPerPixel)
        return samples * max(2, int(file.get("BitsAllocated", 64)) // 8)


def _header(data: bytes) -> Any:
    return pydicom.dcmread(io.BytesIO(data), stop_before_pixels=True)


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Turn what pydicom raises in a block into ``ImageRejected``, and silence its warnings.

    What the file itself raises where it is read stays as it is.
    """
    try:
        with no_warnings:
            yield
    except (UnusableInput, ShardmillError, MemoryError):
        raise
    except Exception as error:  # it raises anything on hostile bytes; the error becomes a row
        raise _rejected(error) from error


def _group(series: object) -> str | None:
    """Return the key of a series: a hash, which reveals neither the UID of the series nor the patient."""
    return f"{GROUP_OF_FILE}{hashlib.sha256(str(series).encode()).hexdigest()[:16]}" if series else None


def _rejected(error: Exception) -> ImageRejected:
    words = str(error) or type(error).__name__
    if isinstance(error, EOFError) or "less than expected" in words or "truncated" in words.lower():
        return ImageRejected("truncated", "the DICOM file ends early")
    return ImageRejected("corrupt", f"not a sound DICOM file: {words}")


def _read(data: bytes, max_pixels: int) -> _Frame:
    file = pydicom.dcmread(io.BytesIO(data))
    held = [name for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData") if name in file]
    if not held:
        uid = file.get("SOPClassUID") or file.file_meta.get("MediaStorageSOPClassUID")
        raise ImageRejected(
            NO_PICTURE, f"a DICOM object without a picture ({uid.name if uid else 'of no class'})"
        )
    check_pixels(int(file.Rows), int(file.Columns), max_pixels)
    color = str(file.PhotometricInterpretation)
    if color not in _COLORS:
        raise ImageRejected("unsupported", f"a DICOM file of the photometric interpretation {color}")
    frames = int(file.get("NumberOfFrames") or 1)
    if frames != 1:
        raise ImageRejected(
            "unsupported",
            f"a DICOM file of {frames} frames; set image.pages: images (each is one) or channels (of one)",
        )
    bits = int(file.BitsStored) if "PixelData" in held else 0
    return _Frame(file, tuple(groups_of_frame(file, 0).values()), stored_values(file, 0), color, bits)


def groups_of_frame(file: Any, number: int) -> dict[str, Any]:
    """Return the functional groups of a frame that tell values and windows, by name (PS3.3 C.7.6.16)."""
    parts: dict[str, Any] = {}
    of_frames = file.get("PerFrameFunctionalGroupsSequence") or ()
    for groups in (*of_frames[number : number + 1], *(file.get("SharedFunctionalGroupsSequence") or ())):
        for name in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
            if groups.get(name):
                parts.setdefault(name, groups[name][0])
    return parts


def _color_name(frame: _Frame) -> str:
    name, bits = _COLORS[frame.color], frame.bits
    if frame.stored.dtype.kind == "f":
        return f"{name} float"
    return name if bits == 8 else f"{name} {bits}-bit"


def _colors(frame: _Frame, window: Window) -> Pixels:
    """Return the colours of a frame, uint8 [H, W] or [H, W, 3]."""
    if frame.color == _PALETTE:
        return _colors_of_palette(frame)
    if frame.color in _GREY:
        return _shades_of(frame, window, np.dtype(np.uint8))
    if frame.stored.dtype.kind == "f":
        raise ImageRejected("unsupported", "a DICOM file whose colours are floating-point numbers")
    if frame.bits == 8:
        return frame.stored.astype(np.uint8)
    low, high = _stored_range(frame)
    return _by_table(frame, lambda stored: _scaled((stored - low) / (high - low), np.dtype(np.uint8)))


def _colors_of_palette(frame: _Frame) -> Pixels:
    count, first, _ = frame.file.RedPaletteColorLookupTableDescriptor
    palette = apply_color_lut(np.arange(first, first + (count or 1 << 16)), frame.file)
    # Some writers give 8 bits of each colour where the descriptor says 16.
    palette = palette >> 8 if palette.max() > _MOST_OF_8_BITS else palette
    colors: Pixels = np.take(palette.astype(np.uint8), frame.stored.astype(np.int64) - first, 0, mode="clip")
    return colors


def _scaled(shades: Values, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.rint(np.iinfo(dtype).max * np.clip(np.nan_to_num(shades), 0, 1)).astype(dtype)


def _shades_of(frame: _Frame, window: Window, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return grey by the window, from 0 to the largest number of an unsigned type."""
    return _by_table(frame, lambda stored: _scaled(_shades(frame, window, stored), dtype))


def _by_table(frame: _Frame, convert: Callable[[Values], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Convert each stored value by a function, which sees every possible value once if they are few."""
    stored = frame.stored
    if stored.dtype.kind not in "iu" or stored.dtype.itemsize > _TABLE_BYTES:
        return convert(stored.astype(np.float64))
    first = np.iinfo(stored.dtype).min
    table = convert(np.arange(first, np.iinfo(stored.dtype).max + 1, dtype=np.float64))
    return np.asarray(np.take(table, stored.astype(np.int32) - first))


def _numbers(frame: _Frame) -> npt.NDArray[Any]:
    """Return modality values, as uint8, uint16 or float64."""
    turned = frame.color == _INVERTED
    if frame.stored.dtype.kind == "f":
        if turned:
            raise ImageRejected(
                "unsupported", "a DICOM file of floating-point values whose white is the least"
            )
        return frame.stored
    low, high = _stored_range(frame)

    def numbers(stored: Values) -> Values:
        return _modality(frame, low + high - stored if turned else stored)

    ends, unit = numbers(np.array([low, high], np.float64)), numbers(np.array([low, low + 1], np.float64))
    is_whole = frame.part_with("ModalityLUTSequence") is None and all(
        float(end).is_integer() for end in (*ends, *unit)
    )
    least, most = ends.min(), ends.max()
    if not is_whole or least < 0 or most > 0xFFFF:
        return _by_table(frame, numbers)
    kind = np.uint8 if most <= 0xFF else np.uint16
    return _by_table(frame, lambda stored: np.clip(numbers(stored), least, most).astype(kind))


def _shades(frame: _Frame, window: Window, stored: Values) -> Values:
    values = _modality(frame, stored)
    shades = _chosen_window(frame, window)(values)
    return 1 - shades if frame.color == _INVERTED else shades


def _modality(frame: _Frame, stored: Values) -> Values:
    table = frame.part_with("ModalityLUTSequence")
    if table is not None:
        return np.asarray(apply_modality_lut(stored.astype(np.int64), table), np.float64)
    slope, intercept = frame.element("RescaleSlope"), frame.element("RescaleIntercept")
    return stored * float(1 if slope is None else slope) + float(intercept or 0)


def _stored_range(frame: _Frame) -> tuple[int, int]:
    """Return the least and the largest value that the declared bits can hold."""
    signed = frame.stored.dtype.kind == "i"
    return (-(1 << frame.bits - 1), (1 << frame.bits - 1) - 1) if signed else (0, (1 << frame.bits) - 1)


def _chosen_window(frame: _Frame, window: Window) -> Callable[[Values], Values]:
    """Return the function from modality values to shades, 0 to 1."""
    if isinstance(window, tuple):
        return _linear_exact(*window)
    if window == "file":
        center, width = _first(frame.element("WindowCenter")), _first(frame.element("WindowWidth"))
        if center is not None and width is not None:
            return _window_of_file(center, width, str(frame.element("VOILUTFunction") or "LINEAR"))
        table = frame.part_with("VOILUTSequence")
        if table is not None:
            bits = int(table.VOILUTSequence[0].LUTDescriptor[2])
            return lambda values: (
                np.asarray(apply_voi(np.rint(values).astype(np.int64), table)) / ((1 << bits) - 1)
            )
    kind = frame.stored.dtype.kind
    if kind == "f" or (window == "file" and frame.bits > (15 if kind == "i" else 16)):
        sign = "signed " if kind == "i" else ""
        words = "floating-point values" if kind == "f" else f"{sign}{frame.bits}-bit values"
        or_full = "" if kind == "f" else ", or --set image.window=full for all that these bits can hold"
        raise ImageRejected(
            "unsupported",
            f"a DICOM file of {words} without a window: say which values are black and white with "
            f"--set image.window=[CENTRE,WIDTH]{or_full}",
        )
    low, high = _stored_range(frame)
    by_table = frame.part_with("ModalityLUTSequence") is not None and frame.bits <= 8 * _TABLE_BYTES
    levels = np.arange(low, high + 1) if by_table else np.array([low, high])
    ends = _modality(frame, levels.astype(np.float64))
    black, white = float(ends.min()), float(ends.max())
    if black == white:
        raise ImageRejected("corrupt", "not a sound DICOM file: its rescale slope is 0")
    return lambda values: (values - black) / (white - black)


def _window_of_file(center: float, width: float, function: str) -> Callable[[Values], Values]:
    """Return the function of a window in a file (PS3.3 C.11.2.1.2 and C.11.2.1.3)."""
    if not np.isfinite([center, width]).all() or width <= 0:
        raise ImageRejected(
            "unsupported",
            f"its window has the centre {center:g} and the width {width:g}: name another with image.window",
        )
    if function == "LINEAR_EXACT":
        return _linear_exact(center, width)
    if function == "SIGMOID":
        return lambda values: 1 / (1 + np.exp(-4 * (values - center) / width))
    if function != "LINEAR":
        raise ImageRejected(
            "unsupported", f"its window is of the function {function}: name another with image.window"
        )
    if width <= 1:
        return lambda values: np.where(values <= center - 0.5, 0.0, 1.0)
    return lambda values: (values - (center - 0.5)) / (width - 1) + 0.5


def _linear_exact(center: float, width: float) -> Callable[[Values], Values]:
    return lambda values: (values - center) / width + 0.5


def _first(value: Any) -> float | None:
    """Return the first of several values; None if there is none."""
    if isinstance(value, pydicom.multival.MultiValue):
        value = value[0] if value else None
    return None if value in (None, "") else float(value)
