"""Formats by their signatures; decoded images, turned upright; and the refusal of an image."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import UnusableInput
from shardmill.infra.preparation import Hdr, Preparation, Window

Sample = TypeVar("Sample", bound=np.generic)


Pixels = npt.NDArray[np.uint8]
Color = tuple[int, int, int]  # red, green, blue, 0 to 255

WHITE: Color = (255, 255, 255)
MAX_PIXELS = 178_956_970  # 512 MiB of RGB; above half of this Pillow warns of a decompression bomb

FORMATS = {
    "jpeg": "JPEG",
    "png": "PNG",
    "webp": "WebP",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "jpeg2000": "JPEG 2000",
    "avif": "AVIF",
    "heif": "HEIF",
    "dicom": "DICOM",
    "numpy": "NumPy",
    "ppm": "PNM",
}

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),  # BigTIFF
    (b"MM\x00+", "tiff"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "jpeg2000"),
    (b"\xff\x4f\xff\x51", "jpeg2000"),
    *((kind + blank, "ppm") for kind in (b"P5", b"P6") for blank in (b"\n", b" ", b"\r", b"\t")),
)
_DICOM_MARK_AT = 128
HEAD_BYTES: Final = _DICOM_MARK_AT + 4  # the first bytes of a file, with every signature
NPY: Final = b"\x93NUMPY"
_LATER = ("dicom", "numpy", "ppm")
GROUP_OF_FILE = "series:"  # keys of groups that files give begin with this
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIF_BRANDS = frozenset(
    {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
)

# Files that lie among photographs and are not read, in words that help more than their first bytes.
_STRANGERS: tuple[tuple[bytes, str], ...] = (
    (b"<!doctype html", "an HTML page, as a failed download leaves it"),
    (b"<html", "an HTML page, as a failed download leaves it"),
    (b"<svg", "an SVG drawing"),
    (b"<?xml", "an XML document"),
    (b"%pdf", "a PDF document"),
    (b"%!ps", "a PostScript document"),
    (b"8bps", "a Photoshop document"),
    (b"pk\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x00\x00\x01\x00", "an icon (ICO)"),
    (b"\x00\x00\x00\x0cjxl ", "a JPEG XL image"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"v/1\x01", "an OpenEXR image"),
    (b"iiro", "a camera raw file (ORF)"),
    (b"iirs", "a camera raw file (ORF)"),
    (b"mmor", "a camera raw file (ORF)"),
    (b"iiu\x00", "a camera raw file (RW2)"),
    (b"fujifilmccd-raw", "a camera raw file (RAF)"),
    (b"\x08\x00\x05\x00", "DICOM without its preamble of 128 bytes"),
    (b"\x00\x08\x00\x05", "DICOM without its preamble of 128 bytes"),
    (b"version https://git-lfs", "a pointer of Git LFS; the image itself was not fetched"),
)


class ImageRejected(UnusableInput):
    """An image cannot be used. It becomes a row of the quarantine and never ends a job.

    Attributes:
        reason: a name of ``beam_jobs/reasons.py``, such as "corrupt"; a test compares them.
        message: the fault, for a person.
    """


@dataclass(frozen=True, slots=True)
class Wanted:
    """The image that a decoder makes of a file.

    Attributes:
        channels: 1 for grey, 3 for RGB.
        max_pixels: refuse larger images by their header, before anything is decoded.
        background: colour behind transparent pixels.
        allow_truncated: decode what there is of a file that ends early, and flag it as salvaged.
        window: which values of DICOM become black and white.
        hdr: what becomes of HDR.
    """

    channels: int
    max_pixels: int
    background: Color
    allow_truncated: bool
    window: Window = "file"
    hdr: Hdr = "tone-map"

    @classmethod
    def of(cls, how: Preparation, channels: int = 3) -> Self:
        """Return what a preparation wants of a file, in grey or RGB."""
        return cls(channels, how.max_pixels, how.color_behind, how.allow_truncated, how.window, how.hdr)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Facts about the file that an image was decoded from.

    Attributes:
        format: "jpeg", "png", ...
        color: colour in the file: "YCbCr 4:2:0", "grey", "RGB 16-bit", "palette", "CMYK", ...
        height: rows as stored in the file, before orientation (pixels).
        width: columns as stored in the file, before orientation (pixels).
        orientation: the EXIF orientation that was applied, 1 to 8.
        icc_profile: the colours that were converted to sRGB: description of the profile, or what the file
            states otherwise, as "Display P3 (cICP)"; None if nothing was converted.
        had_alpha: transparent pixels were composited on the background.
        salvaged: the file ends early; missing pixels are grey or black.
        group: key of the images that belong together, such as a series of DICOM; None if it tells none.
        note: what of the colours in the file was left out, such as a damaged profile; "" for nothing.
    """

    format: str
    color: str
    height: int
    width: int
    orientation: int = 1
    icc_profile: str | None = None
    had_alpha: bool = False
    salvaged: bool = False
    group: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An upright image in sRGB.

    Attributes:
        pixels: uint8 [H, W, C], C = 1 (grey) or 3 (RGB), EXIF orientation applied.
        source: facts about the file.
    """

    pixels: Pixels
    source: SourceFacts


_BAND_PIXELS = 1 << 20


def band_rows(width: int) -> int:
    """Return how many rows of a picture are handed over at a time."""
    return max(1, _BAND_PIXELS // max(1, width))


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded picture in sRGB, handed over in bands of rows: so colours are never converted all at once.

    Attributes:
        height: rows, before the picture is turned (pixels).
        width: columns, before the picture is turned (pixels).
        orientation: EXIF orientation by which it is still to be turned, 1 to 8.
        bands: uint8 [rows, W, C] each, C = 1 (grey) or 3 (RGB), from the top. They come once, and
            ImageRejected may come in place of one.
        facts: returns the facts about the file, after the last band.
    """

    height: int
    width: int
    orientation: int
    bands: Iterator[Pixels]
    facts: Callable[[], SourceFacts]

    @classmethod
    def of(cls, decoded: DecodedImage) -> Picture:
        """Return an upright image as a picture of one band."""
        height, width = decoded.pixels.shape[:2]
        return cls(height, width, 1, iter((decoded.pixels,)), lambda: decoded.source)

    def whole(self) -> DecodedImage:
        """Return the picture upright."""
        pixels, row = next(self.bands), 0
        if len(pixels) < self.height:
            whole = np.empty((self.height, *pixels.shape[1:]), np.uint8)
            for band in itertools.chain((pixels,), self.bands):
                whole[row : row + len(band)] = band
                row += len(band)
            pixels = whole
        return DecodedImage(apply_orientation(pixels, self.orientation), self.facts())


def sniff(data: bytes) -> str | None:
    """Return the format of a file by its signature, or None if the format is not read."""
    if (
        data[_DICOM_MARK_AT : _DICOM_MARK_AT + 4] == b"DICM"
    ):  # any bytes may stand before it, also another signature
        return "dicom"
    for signature, name in _SIGNATURES:
        if data.startswith(signature):
            return name
    if data.startswith(NPY) or (
        data.startswith(b"PK\x03\x04")
        and data[30 : 30 + int.from_bytes(data[26:28], "little")].endswith(b".npy")
    ):
        return "numpy"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    return _sniff_brands(data) if data[4:8] == b"ftyp" else None


def _sniff_brands(data: bytes) -> str | None:
    """Return "avif", "heif" or None (a film) by the brands of a media file (ISO/IEC 14496-12, 4.3)."""
    end = min(int.from_bytes(data[:4], "big"), len(data), 1024)
    brands = {data[8:12], *(data[at : at + 4] for at in range(16, end - 3, 4))}
    if brands & _AVIF_BRANDS:
        return "avif"
    return "heif" if brands & _HEIF_BRANDS else None


def check_format(data: bytes) -> str:
    """Return the format of a file.

    Raises:
        ImageRejected: the file is empty ("empty"), or of a format that is not read ("unknown_format").
    """
    found = sniff(data)
    if found is not None:
        return found
    if not data:
        raise ImageRejected("empty", "the file is empty (0 bytes)")
    known = ", ".join(
        name for found, name in FORMATS.items() if found not in _LATER
    )  # messages stay the same
    begin = data[:64].lstrip().lower()
    stranger = next((words for signature, words in _STRANGERS if begin.startswith(signature)), None)
    if data[4:8] == b"ftyp":
        stranger = "a camera raw file (CR3)" if data[8:12] == b"crx " else "a film"
    if stranger is not None:
        raise ImageRejected("unknown_format", f"it is {stranger}; {known} are read")
    if not any(data[:4096]):
        raise ImageRejected("unknown_format", "it begins with nothing but zeros: its content was lost")
    raise ImageRejected(
        "unknown_format",
        f"begins with the bytes {data[:4].hex(' ').upper()}, which is none of {known}",
    )


def check_pixels(height: int, width: int, max_pixels: int) -> None:
    """Refuse an image that has more pixels than ``max_pixels``.

    Raises:
        ImageRejected: "too_many_pixels".
    """
    if height * width > max_pixels:
        raise ImageRejected("too_many_pixels", f"{width}×{height}: {too_many_pixels(max_pixels)}")


def too_many_pixels(max_pixels: int) -> str:
    """Return the message about an image with more pixels than ``max_pixels``."""
    return f"its header announces more pixels than are allowed ({max_pixels:,}); nothing was decoded"


def apply_orientation(pixels: npt.NDArray[Sample], orientation: int) -> npt.NDArray[Sample]:
    """Turn pixels upright (EXIF 2.32, tag 274).

    Args:
        pixels: [H, W, C] as stored.
        orientation: 1 to 8.

    Returns:
        [H, W, C], or [W, H, C] for 5 to 8.
    """
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
