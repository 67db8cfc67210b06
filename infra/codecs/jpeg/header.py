"""Read a JPEG's header and the headers of its scans without a library, in a few microseconds.

No decoder misses a scan. From a progressive file that holds only its first scan, libjpeg makes a picture of
blocks and does not warn. The headers of the scans tell which coefficients were sent. (ITU-T T.81, B.2.3 and
G.1)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from shardmill.infra.codecs.color import Choice, choose_conversion
from shardmill.infra.codecs.formats import ImageRejected, check_pixels
from shardmill.infra.codecs.jpeg.segments import EOI, FRAMES, SOS, header_segments, scan_markers
from shardmill.infra.codecs.structure.exif import orientation_in
from shardmill.infra.codecs.structure.heif_colors import GAIN_MAP_OF_APPLE
from shardmill.infra.preparation import Hdr

_SOS_OR_EOI = re.compile(rb"\xff[\xda\xd9]")
_ALL_COEFFICIENTS = (1 << 64) - 1  # a bit for each coefficient of a block of 8×8 pixels
# Encoders write about ten scans. The rest of a hostile file is not read.
_MOST_SCANS = 1000


@dataclass(frozen=True, slots=True)
class _Scan:
    """The header of a scan.

    Attributes:
        components: identifiers of the components in the scan.
        first: first coefficient of each block that the scan holds, 0 to 63.
        last: last coefficient.
        missing_bits: number of low bits that later scans add.
    """

    components: bytes
    first: int
    last: int
    missing_bits: int


def _read_scans(data: bytes, begin: int, components: bytes, progressive: bool) -> tuple[int, bool]:
    """Count the scans, and tell whether they hold each coefficient of each component to its last bit.

    Args:
        data: a JPEG.
        begin: position of the first SOS marker.
        components: identifiers of the components, from the frame header.
        progressive: scans hold parts of coefficients; else they hold their components whole.

    Returns:
        The number of scans, and whether none is missing.
    """
    # Searching for two bytes is ten times as fast as following all markers. It can only miss scans: those
    # behind a table or comment that happens to contain an end mark.
    scans = _scans_at(data, _positions(data, begin))
    if _complete(scans, components, progressive):
        return len(scans), True
    markers = scan_markers(data, begin + 2 + int.from_bytes(data[begin + 2 : begin + 4], "big"))
    later = (position for marker, position in markers if marker == SOS)
    scans = _scans_at(data, itertools.chain((begin,), later))
    return len(scans), _complete(scans, components, progressive)


def _positions(data: bytes, begin: int) -> Iterator[int]:
    for found in _SOS_OR_EOI.finditer(data, begin):
        if found[0] == EOI:
            return
        yield found.start()


def _scans_at(data: bytes, positions: Iterable[int]) -> list[_Scan]:
    scans = []
    for position in itertools.islice(positions, _MOST_SCANS):
        content = data[position + 4 : position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")]
        if content and len(content) == 4 + 2 * content[0]:
            first, last, bits = content[-3:]
            scans.append(_Scan(content[1:-3:2], first, last, bits & 15))
    return scans


def _complete(scans: Iterable[_Scan], components: bytes, progressive: bool) -> bool:
    if not progressive:
        return set(components) <= {name for scan in scans for name in scan.components}
    missing = dict.fromkeys(components, _ALL_COEFFICIENTS)
    for scan in scans:
        if scan.missing_bits == 0 and scan.first <= scan.last:
            band = (1 << (scan.last + 1)) - (1 << scan.first)
            for name in scan.components:
                missing[name] = missing.get(name, 0) & ~band
    return not any(missing.values())


ColorSpace = Literal["grey", "YCbCr", "RGB", "CMYK", "YCCK", "other"]

# Progressive JPEGs have about ten scans. Each takes a few bytes and costs a pass over the whole image.
_MAX_SCANS = 100

_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_LOSSLESS = frozenset({0xC3, 0xC7, 0xCB, 0xCF})
_SEARCHED_BYTES = 1 << 16  # EXIF comes first; shardmill.training.tensorflow.export.graph searches as many
_ICC = b"ICC_PROFILE\x00"
# XMP of Ultra HDR and Adobe's gain maps, ISO 21496-1, and Apple's.
_GAIN_MAP, _GAIN_MAP_OF_ISO = b"http://ns.adobe.com/hdr-gain-map/", b"urn:iso:std:iso:ts:21496:-1\x00"


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """A JPEG's header.

    Attributes:
        height: rows as stored, before orientation (pixels).
        width: columns as stored, before orientation (pixels).
        precision: bits a sample; 8 except in rare files.
        sampling: horizontal and vertical sampling factor of each component.
        color_space: as libjpeg derives it from the JFIF and Adobe segments and the components' identifiers.
        progressive: several scans refine the picture.
        lossless: the file uses the lossless process, which is another codec altogether.
        scans: number of scans.
        interleaved: the first scan holds all components. A file that is not progressive has no other scan.
        complete: no scan is missing.
        orientation: from EXIF, 1 to 8.
        icc: the ICC profile; empty if a part of it is missing, None if there is none.
        has_gain_map: the file also holds a map by which HDR viewers brighten the picture.
    """

    height: int
    width: int
    precision: int
    sampling: tuple[tuple[int, int], ...]
    color_space: ColorSpace
    progressive: bool
    lossless: bool
    scans: int
    interleaved: bool
    complete: bool
    orientation: int
    icc: bytes | None
    has_gain_map: bool

    @property
    def mode(self) -> str:
        """Pillow's name of the mode of the decoded pixels."""
        return {"grey": "L", "CMYK": "CMYK", "YCCK": "CMYK"}.get(self.color_space, "RGB")

    def conversion(self, hdr: Hdr = "tone-map") -> Choice:
        """Return the conversion to sRGB, with a note on what of the file's colours is left out.

        Raises:
            ImageRejected: the picture is HDR, which ``hdr`` refuses.
        """
        found = choose_conversion(() if self.icc is None else (self.icc,), self.mode, hdr)
        return found.noting("gain map left out") if self.has_gain_map else found

    @property
    def components(self) -> int:
        """Number of components."""
        return len(self.sampling)

    @property
    def subsampling(self) -> str:
        """Name of the sampling: "4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "4:1:0", or "" without name."""
        if self.components != 3 or self.sampling[1] != self.sampling[2]:
            return ""
        (luma_h, luma_v), (chroma_h, chroma_v) = self.sampling[:2]
        if luma_h % chroma_h or luma_v % chroma_v:
            return ""
        return _SUBSAMPLINGS.get((luma_h // chroma_h, luma_v // chroma_v), "")

    @property
    def source_color(self) -> str:
        """Colour as records state it: "YCbCr 4:2:0", "grey", "CMYK", ..."""
        name = f"{self.color_space} {self.subsampling}" if self.color_space == "YCbCr" else self.color_space
        name = f"{name.strip()} lossless" if self.lossless else name.strip()
        return f"{name} {self.precision}-bit" if self.precision != 8 else name


_SUBSAMPLINGS = {
    (1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (1, 2): "4:4:0", (4, 1): "4:1:1", (4, 2): "4:1:0",
}  # fmt: skip


def read_header(data: bytes) -> JpegHeader:
    """Read the header of a JPEG.

    Raises:
        ImageRejected: the file ends before its picture ("truncated"), or has no frame header ("corrupt").
    """
    frame: tuple[int, int, int] | None = None
    jfif = False
    adobe: int | None = None
    orientation: int | None = None
    icc_parts: dict[int, bytes] = {}
    icc_count = 0
    has_gain_map = False
    first_sos = first_scan = 0
    marker = None
    for marker, start, end in header_segments(data):
        if marker in FRAMES and frame is None:
            frame = marker, start, end
        elif marker == SOS:
            first_sos, first_scan = start - 4, data[start] if start < end else 0
        elif marker == 0xE0:
            jfif = jfif or data.startswith(b"JFIF\x00", start)
        elif marker == 0xE1 and orientation is None and data.startswith(b"Exif\x00\x00", start):
            if start < _SEARCHED_BYTES:
                orientation = orientation_in(data[start:end])
        elif marker == 0xE1 and data.startswith(b"http", start):
            has_gain_map = has_gain_map or data.find(_GAIN_MAP, start, end) >= 0
        elif marker == 0xE2 and data.startswith((_GAIN_MAP_OF_ISO, b"MPF\x00"), start):
            # Telephones of Apple name the map only in its own header, behind the picture.
            is_iso = data.startswith(_GAIN_MAP_OF_ISO, start)
            has_gain_map = has_gain_map or is_iso or data.find(GAIN_MAP_OF_APPLE, end) >= 0
        elif marker == 0xE2 and data.startswith(_ICC, start) and end - start >= 14:
            icc_parts[data[start + 12]] = data[start + 14 : end]
            icc_count = data[start + 13]
        elif marker == 0xEE and data.startswith(b"Adobe", start) and end - start >= 12:
            adobe = data[start + 11]
    if marker is None:
        raise ImageRejected("corrupt", "not a sound JPEG: nothing follows its first bytes")
    if not first_sos:
        raise ImageRejected("truncated", "the JPEG ends before its picture begins")
    if frame is None:
        raise ImageRejected("corrupt", "not a sound JPEG: it has no frame header")
    marker, start, end = frame
    names, sampling = _components(data[start:end])
    progressive, interleaved = marker in _PROGRESSIVE, first_scan == len(names)
    scans, complete = 1, True
    if progressive or not interleaved:
        scans, complete = _read_scans(data, first_sos, names, progressive)
    numbers = range(1, icc_count + 1)  # of the parts of the ICC profile
    is_whole = sorted(icc_parts) == list(numbers)
    return JpegHeader(
        height=int.from_bytes(data[start + 1 : start + 3], "big"),
        width=int.from_bytes(data[start + 3 : start + 5], "big"),
        precision=data[start],
        sampling=sampling,
        color_space=_color_space(names, jfif, adobe, marker in _LOSSLESS),
        progressive=progressive,
        lossless=marker in _LOSSLESS,
        scans=scans,
        interleaved=interleaved,
        complete=complete,
        orientation=orientation or 1,
        icc=None if not icc_parts else b"".join(icc_parts[at] for at in numbers) if is_whole else b"",
        has_gain_map=has_gain_map,
    )


def check_header(header: JpegHeader, max_pixels: int) -> None:
    """Refuse a file that cannot or should not be decoded.

    Raises:
        ImageRejected: "too_many_pixels", "bomb" or "unsupported".
    """
    check_pixels(header.height, header.width, max_pixels)
    if header.precision != 8:
        raise ImageRejected(
            "unsupported", f"a JPEG of {header.precision} bits a sample; only those of 8 bits are read"
        )
    if header.scans > _MAX_SCANS:
        raise ImageRejected(
            "bomb", f"a JPEG of {header.scans:,} scans, each a pass over the whole image; "
            f"at most {_MAX_SCANS} are allowed"
        )  # fmt: skip


def _components(frame: bytes) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    """Return identifiers and sampling factors of the components in the content of an SOFn segment."""
    if len(frame) < 6 or len(frame) < 6 + 3 * frame[5] or not frame[5]:
        raise ImageRejected("corrupt", "not a sound JPEG: its frame header is too short")
    factors = [frame[7 + 3 * i] for i in range(frame[5])]
    if not all(1 <= factor >> 4 <= 4 and 1 <= factor & 15 <= 4 for factor in factors):
        raise ImageRejected("corrupt", "not a sound JPEG: sampling factors that do not exist")
    return frame[6 : 6 + 3 * frame[5] : 3], tuple((factor >> 4, factor & 15) for factor in factors)


def _color_space(names: bytes, jfif: bool, adobe: int | None, lossless: bool) -> ColorSpace:
    """Return the colour space that libjpeg-turbo's default_decompress_parms chooses."""
    if len(names) == 1:
        return "grey"
    if len(names) == 3:
        if jfif:
            return "YCbCr"
        if adobe is not None:
            return "RGB" if adobe == 0 else "YCbCr"
        return "RGB" if names == b"RGB" or (lossless and names == b"\x01\x02\x03") else "YCbCr"
    if len(names) == 4:
        return "YCCK" if adobe == 2 else "CMYK"
    return "other"
