"""Read the chunks of a WebP file (RFC 9649), and separate the picture from the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.structure.exif import orientation_in

_ALPHA_FLAG = 0x10
_ANIMATION_FLAG = 0x02


@dataclass(frozen=True, slots=True)
class WebpFile:
    """A WebP's header and picture.

    Attributes:
        height: height of the canvas (pixels).
        width: width of the canvas (pixels).
        source_color: "YCbCr 4:2:0" (lossy), "RGB" (lossless), either with "+alpha"; "animation".
        orientation: from EXIF, 1 to 8.
        icc: the ICC profile, or None.
        whole: the file is as long as it says.
        picture: a file of only a still picture's own chunks; for an animation the whole file.
    """

    height: int
    width: int
    source_color: str
    orientation: int
    icc: bytes | None
    whole: bool
    picture: bytes


def read_webp(data: bytes) -> WebpFile:
    """Read the header and separate the chunks of a WebP.

    Raises:
        ImageRejected: the file has no picture, or ends before it.
    """
    found, cut, whole = _first_chunks(data)
    extended = found.get(b"VP8X", b"")
    name = b"VP8L" if b"VP8L" in found else b"VP8 "
    picture = found.get(name, b"")
    if len(extended) >= 10 and extended[0] & _ANIMATION_FLAG:
        height, width = (1 + int.from_bytes(extended[at : at + 3], "little") for at in (7, 4))
        color, stored = "animation", data
    else:
        if cut in (name, b"ALPH", b"VP8X"):
            raise ImageRejected("truncated", "the WebP file ends early: its picture is not all there")
        height, width = _size(picture, name, whole)
        has_alpha = b"ALPH" in found or (name == b"VP8L" and bool(picture[4] & _ALPHA_FLAG))
        color = ("RGB" if name == b"VP8L" else "YCbCr 4:2:0") + ("+alpha" if has_alpha else "")
        stored = _still(name, picture, found.get(b"ALPH"), height, width)
    return WebpFile(
        height,
        width,
        color,
        orientation_in(found.get(b"EXIF", b"")),
        found.get(b"ICCP"),
        whole,
        stored,
    )


def without_metadata(data: bytes) -> bytes | None:
    """Remove chunks that the picture does not need. Return None if the file is not a whole still picture."""
    try:
        file = read_webp(data)
    except ImageRejected:
        return None
    return file.picture if file.whole and file.source_color != "animation" else None


def chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, and start and end of the content, of each chunk. The last may reach beyond the end."""
    end, position = min(_announced_end(data), len(data)), 12
    while position + 8 <= end:
        length = int.from_bytes(data[position + 4 : position + 8], "little")
        yield data[position : position + 4], position + 8, position + 8 + length
        position += 8 + length + (length & 1)  # padding, which many files lack at their end


def _announced_end(data: bytes) -> int:
    return 8 + int.from_bytes(data[4:8], "little")


def _first_chunks(data: bytes) -> tuple[dict[bytes, bytes], bytes, bool]:
    """Read the chunks.

    Returns:
        The first chunk of each name, the name of the chunk that the end of the file cuts (or nothing), and
        whether the file is whole.
    """
    found: dict[bytes, bytes] = {}
    cut = b""
    for name, start, end in chunks(data):
        found.setdefault(name, data[start:end])
        cut = name if end > len(data) else cut
    return found, cut, _announced_end(data) <= len(data) + 1


def _size(picture: bytes, name: bytes, whole: bool) -> tuple[int, int]:
    """Return height and width of a still picture by its own header."""
    if len(picture) < 10:
        if not whole:
            raise ImageRejected("truncated", "the WebP file ends before its picture begins")
        raise ImageRejected("corrupt", "not a sound WebP file: it holds no picture")
    if name == b"VP8L":
        bits = int.from_bytes(picture[1:5], "little")
        return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)
    width, height = (int.from_bytes(picture[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    if not height or not width:
        raise ImageRejected("corrupt", "not a sound WebP file: its picture has no size")
    return height, width


def _still(name: bytes, picture: bytes, alpha: bytes | None, height: int, width: int) -> bytes:
    """Return a file of only the picture: in the simple form, or in the extended form with an alpha plane."""
    chunks = [(name, picture)]
    if alpha is not None:
        canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        chunks = [(b"VP8X", bytes([_ALPHA_FLAG, 0, 0, 0]) + canvas), (b"ALPH", alpha), (name, picture)]
    body = b"WEBP"
    for chunk_name, content in chunks:
        body += chunk_name + len(content).to_bytes(4, "little") + content + bytes(len(content) & 1)
    return b"RIFF" + len(body).to_bytes(4, "little") + body
