"""Read the chunks of a PNG file (PNG specification, third edition), and separate the picture from the rest.

Decoders read every chunk, and fail on a comment that is damaged or enormous. So they get only the picture's
own chunks. A chunk that stands where the specification (5.6) forbids it, or a second time, counts as absent,
as it does in libpng. An animation keeps its default image, which viewers of still images show.

If the compressed data ends early without an error, Pillow fills the missing rows with black.
``holds_all_rows`` detects that (7.2, 8.1 and 10).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from isal.isal_zlib import crc32  # at ten times the speed of zlib's

from shardmill.infra.codecs.color.icc import MAX_ICC_BYTES
from shardmill.infra.codecs.color.stated import Stated, Statement, of_codes, of_gamma
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.structure.exif import orientation_in

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PICTURE = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
# Chunks before which another one must stand. In a file with a palette, tRNS also stands behind PLTE.
_NOT_BEHIND = {
    b"PLTE": {b"IDAT"},
    b"tRNS": {b"IDAT"},
    b"iCCP": {b"PLTE", b"IDAT"},
    b"cICP": {b"PLTE", b"IDAT"},
    b"sRGB": {b"PLTE", b"IDAT"},
    b"gAMA": {b"PLTE", b"IDAT"},
    b"cHRM": {b"PLTE", b"IDAT"},
    b"sBIT": {b"PLTE", b"IDAT"},
}
_ONLY_ONCE = frozenset({b"PLTE", b"tRNS"})
_PALETTE = 3
_CLEAR_BYTES = {0: 2, 2: 6}  # length of tRNS in files of these types of colour
_CHUNK_NAME = re.compile(rb"[A-Za-z]{4}")

_COLORS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey+alpha", 6: "RGBA"}


@dataclass(frozen=True, slots=True)
class PngFile:
    """A PNG's header and picture.

    Attributes:
        height: pixels.
        width: pixels.
        bit_depth: bits a sample.
        color_type: number of the colour type in IHDR.
        interlaced: the rows come in the passes of Adam7.
        significant_bits: the largest number in sBIT for a channel; ``bit_depth`` if there is no sBIT.
        orientation: from EXIF, 1 to 8.
        stated: what cICP, iCCP, sRGB, and gAMA with cHRM state, which win over each other in this order.
        ended: every chunk could be followed, up to the last.
        picture: a file of only the picture's own chunks.
    """

    height: int
    width: int
    bit_depth: int
    color_type: int
    interlaced: bool
    significant_bits: int
    orientation: int
    stated: tuple[Statement, ...]
    ended: bool
    picture: bytes

    @property
    def channels(self) -> int:
        """Channels of the colours, and one for opacity if the file has any."""
        clear = any(name == b"tRNS" for name, _, _ in chunks(self.picture))
        return {_PALETTE: 3}.get(self.color_type, _SAMPLES.get(self.color_type, 1)) + clear

    @property
    def source_color(self) -> str:
        """Colour as records state it: "RGB", "grey 16-bit", "palette", ..."""
        name = _COLORS.get(self.color_type, "other")
        return name if self.bit_depth == 8 or name == "palette" else f"{name} {self.bit_depth}-bit"


def read_png(data: bytes) -> PngFile:
    """Read the header and separate the chunks of a PNG.

    Raises:
        ImageRejected: the file has no header.
    """
    if data[12:16] == b"CgBI":
        raise ImageRejected(
            "unsupported", "a PNG in the form that Apple's tools make for apps, which only they read"
        )
    if len(data) < 33:
        raise ImageRejected("truncated", "the PNG file ends early, within its header")
    if data[12:16] != b"IHDR" or data[8:12] != b"\x00\x00\x00\x0d":
        raise ImageRejected("corrupt", "not a sound PNG file: it does not begin with its header")
    width, height, bit_depth, color_type, _, _, interlace = struct.unpack_from(">IIBBBBB", data, 16)
    picture, others, ended = _parted(data)
    significant = max(others.get(b"sBIT", b""), default=bit_depth)
    return PngFile(
        height,
        width,
        bit_depth,
        color_type,
        interlace == 1,
        significant if 1 <= significant <= bit_depth else bit_depth,
        orientation_in(others.get(b"eXIf", b"")),
        _stated(others, bit_depth),
        ended,
        picture,
    )


def chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, start and end of the content of each chunk, up to IEND or to one that cannot be followed.

    The last IDAT may reach beyond the end of the file.
    """
    position, name = len(_SIGNATURE), b""
    while position + 12 <= len(data) and name != b"IEND":
        name = data[position + 4 : position + 8]
        end = position + 12 + int.from_bytes(data[position : position + 4], "big")
        if not _CHUNK_NAME.fullmatch(name) or (end > len(data) and name != b"IDAT"):
            return
        yield name, position + 8, end - 4
        position = end


def _parted(data: bytes) -> tuple[bytes, dict[bytes, bytes], bool]:
    """Return the picture, the first of each other chunk, and whether every chunk could be followed."""
    kept = [_SIGNATURE]
    others: dict[bytes, bytes] = {}
    name, rest = b"", len(_SIGNATURE)
    seen: set[bytes] = set()
    palette_bytes = 0
    for name, start, end in chunks(data):
        rest = end + 4  # behind the checksum
        if name in seen and (name == b"IHDR" or (name == b"PLTE" and data[25] == _PALETTE)):
            raise ImageRejected("corrupt", f"not a sound PNG file: it has {name.decode()} twice")
        if not (_NOT_BEHIND.get(name, set()) & seen or (name in _ONLY_ONCE and name in seen)) and (
            name != b"tRNS" or _has_right_length(end - start, data[25], palette_bytes)
        ):
            palette_bytes = end - start if name == b"PLTE" else palette_bytes
            if name in _PICTURE:
                kept.append(data[start - 8 : rest])
            else:
                others.setdefault(name, data[start:end])
        seen.add(name)
    ended = name == b"IEND"
    if not ended and rest + 12 <= len(data):
        kept.append(data[rest:])  # the decoder reports the damage, if it comes this far
    return b"".join(kept), others, ended


def _has_right_length(length: int, color_type: int, palette_bytes: int) -> bool:
    """Tell whether tRNS of this length (bytes) fits the type of colour; types with alpha have none."""
    if color_type == _PALETTE:
        return 0 < 3 * length <= palette_bytes
    return length == _CLEAR_BYTES.get(color_type)


def without_metadata(data: bytes) -> bytes | None:
    """Remove all chunks that the picture does not need. Return None if the file is not a whole PNG."""
    try:
        file = read_png(data)
    except ImageRejected:
        return None
    return file.picture if file.ended else None


def _stated(others: dict[bytes, bytes], bits: int) -> tuple[Statement, ...]:
    """Return what chunks state of the colours, in the order of their precedence (4.3)."""
    return (
        *of_codes(others.get(b"cICP"), bits),
        *(_of_iccp(others[b"iCCP"], bits) if b"iCCP" in others else ()),
        *((Stated("sRGB"),) if others.get(b"sRGB", b"")[:1] in _INTENTS else ()),
        *of_gamma(others.get(b"gAMA"), others.get(b"cHRM")),
    )


_INTENTS = (b"\x00", b"\x01", b"\x02", b"\x03")


def _of_iccp(chunk: bytes, bits: int) -> tuple[Statement, ...]:
    """Return what a chunk iCCP states; by one name it states PQ (W3C, "Using the PQ EOTF with PNG", 2017)."""
    is_pq = chunk.startswith(b"ITUR_2100_PQ_FULL\x00")
    return of_codes(bytes((9, 16, 0, 1)), bits, "iCCP") if is_pq else (_profile_in(chunk),)


def _profile_in(chunk: bytes) -> bytes:
    """Return the profile in a chunk iCCP, or nothing if it is damaged.

    The chunk is a name, a zero, the method 0 and the deflated profile.
    """
    end_of_name = chunk.find(b"\x00", 0, 81)
    if end_of_name < 0:
        return b""
    inflate = zlib.decompressobj()
    try:
        profile = inflate.decompress(chunk[end_of_name + 2 :], MAX_ICC_BYTES)
    except zlib.error:
        return b""
    return profile if inflate.eof else b""


_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Adam7: first column and row, and the steps between columns and rows, of each pass.
_PASSES = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2),
)  # fmt: skip
_MOST_INFLATED = 1032  # bytes that a byte of a deflate stream can stand for
_PIECE_BYTES = 1 << 20


def rows_bytes(file: PngFile) -> int:
    """Return the size of all rows with their filter types, before compression (bytes)."""
    passes = _PASSES if file.interlaced else ((0, 0, 1, 1),)
    total = 0
    for left, top, across, down in passes:
        width, height = -(-(file.width - left) // across), -(-(file.height - top) // down)
        if width > 0 and height > 0:
            total += height * (1 + -(-width * _SAMPLES.get(file.color_type, 1) * file.bit_depth // 8))
    return total


def can_hold_all_rows(file: PngFile) -> bool:
    """Tell whether the compressed data, if there is any, could be long enough were it compressed best."""
    size = sum(end - start for start, end in _data(file))
    return not size or size * _MOST_INFLATED >= rows_bytes(file)


def holds_all_rows(file: PngFile) -> bool:
    """Inflate the compressed data and tell whether it holds all rows."""
    needed = rows_bytes(file)
    for size, _ in _inflate(file):
        needed -= size
        if needed <= 0:
            return True
    return False


def is_undamaged(file: PngFile) -> bool:
    """Tell whether the compressed data matches its checksums.

    Some writers compute wrong ones for their chunks; then the checksum within the data decides.
    """
    picture = memoryview(file.picture)
    if all(
        crc32(picture[start - 4 : end]) == int.from_bytes(picture[end : end + 4], "big")
        for start, end in _data(file)
        if end + 4 <= len(picture)
    ):
        return True
    return any(ended for _, ended in _inflate(file))


def _inflate(file: PngFile) -> Iterator[tuple[int, bool]]:
    """Yield the sizes of pieces of the inflated data, and whether the data ended there with its checksum."""
    inflate = zlib.decompressobj()
    try:
        for start, end in _data(file):
            rest = file.picture[start:end]
            while rest and not inflate.eof:
                yield len(inflate.decompress(rest, _PIECE_BYTES)), inflate.eof
                rest = inflate.unconsumed_tail
    except zlib.error:
        return


def last_row_decoded(file: PngFile) -> int | None:
    """Return the row that a decoder fills last and to its end; None if no row is filled at once."""
    if not file.interlaced:
        return file.height - 1
    return file.height - 1 - file.height % 2 if file.height > 1 else None


def _data(file: PngFile) -> Iterator[tuple[int, int]]:
    """Yield start and end of the content of the chunks that hold the picture."""
    return ((start, end) for name, start, end in chunks(file.picture) if name == b"IDAT")
