"""The chunks of a PNG file (PNG specification, third edition): its header, and the picture without the rest.

Decoders read every chunk, and fail on a damaged or monstrous comment. Ours get the picture's own chunks only.
Of an animation the default image stays, which players of still images show.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

from infra.codecs.color import MAX_ICC_BYTES
from infra.codecs.exif import orientation_in
from infra.codecs.formats import ImageRejected

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PICTURE = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_CHUNK_NAME = re.compile(rb"[A-Za-z]{4}")

_COLORS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey+alpha", 6: "RGBA"}


@dataclass(frozen=True, slots=True)
class PngFile:
    """A PNG's header and picture.

    Attributes:
        height, width: pixels.
        bit_depth: bits a sample.
        color_type: as IHDR states it.
        significant_bits: the largest number that sBIT gives for a channel; ``bit_depth`` where there is none.
        orientation: that EXIF gives, 1 to 8.
        icc: the ICC profile, or None.
        ended: every chunk could be followed, to the last.
        picture: the file without what is not the picture.
    """

    height: int
    width: int
    bit_depth: int
    color_type: int
    significant_bits: int
    orientation: int
    icc: bytes | None
    ended: bool
    picture: bytes

    @property
    def source_color(self) -> str:
        """The colour as records state it: "RGB", "grey 16-bit", "palette", ..."""
        name = _COLORS.get(self.color_type, "other")
        return name if self.bit_depth == 8 or name == "palette" else f"{name} {self.bit_depth}-bit"


def read_png(data: bytes) -> PngFile:
    """Follow the chunks of a PNG.

    Raises:
        ImageRejected: it has no header.
    """
    if data[12:16] == b"CgBI":
        raise ImageRejected(
            "unsupported", "a PNG in the form that Apple's tools make for apps, which only they read"
        )
    if len(data) < 33:
        raise ImageRejected("truncated", "the PNG file ends early, within its header")
    if data[12:16] != b"IHDR" or data[8:12] != b"\x00\x00\x00\x0d":
        raise ImageRejected("corrupt", "not a sound PNG file: it does not begin with its header")
    width, height, bit_depth, color_type = struct.unpack_from(">IIBB", data, 16)
    picture, others, ended = _parted(data)
    significant = max(others.get(b"sBIT", b""), default=bit_depth)
    return PngFile(
        height,
        width,
        bit_depth,
        color_type,
        significant if 1 <= significant <= bit_depth else bit_depth,
        orientation_in(others.get(b"eXIf", b"")),
        _profile_in(others.get(b"iCCP", b"")),
        ended,
        picture,
    )


def _parted(data: bytes) -> tuple[bytes, dict[bytes, bytes], bool]:
    """(the picture, the first of each other chunk, whether every chunk could be followed)."""
    kept = [_SIGNATURE]
    others: dict[bytes, bytes] = {}
    position, ended = len(_SIGNATURE), False
    while position + 12 <= len(data) and not ended:
        name = data[position + 4 : position + 8]
        end = position + 12 + int.from_bytes(data[position : position + 4], "big")
        if not _CHUNK_NAME.fullmatch(name) or (end > len(data) and name != b"IDAT"):
            kept.append(data[position:])  # the decoder says what is wrong, if it comes as far as this
            break
        if name in _PICTURE:
            kept.append(data[position:end])
        else:
            others.setdefault(name, data[position + 8 : end - 4])
        position, ended = end, name == b"IEND"
    return b"".join(kept), others, ended


def without_metadata(data: bytes) -> bytes | None:
    """The same picture without any chunk that is not needed for it; None where it is no whole PNG."""
    try:
        file = read_png(data)
    except ImageRejected:
        return None
    return file.picture if file.ended else None


def _profile_in(chunk: bytes) -> bytes | None:
    """The profile in an iCCP chunk: a name, a zero, the method 0, and the profile deflated."""
    end_of_name = chunk.find(b"\x00", 0, 81)
    if end_of_name < 0:
        return None
    inflate = zlib.decompressobj()
    try:
        profile = inflate.decompress(chunk[end_of_name + 2 :], MAX_ICC_BYTES)
    except zlib.error:
        return None
    return profile if inflate.eof else None
