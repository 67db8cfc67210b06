"""Tell whether a file holds further pictures, which are left out: pages, frames, other images of a container.

Only the structure of the file is read, never its pixels. Thumbnails, masks, opacity, depth and gain maps are
no further pictures. A damaged structure tells of none: decoding the first picture finds what matters of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from shardmill.infra.codecs.formats import ImageRejected, sniff
from shardmill.infra.codecs.jpeg.header import read_header
from shardmill.infra.codecs.pages.tiff_pages import picture_pages
from shardmill.infra.codecs.structure import png_chunks, webp_chunks
from shardmill.infra.codecs.structure.boxes import bounded_boxes, heif_parts
from shardmill.infra.preparation import Pages

# Item types of pictures (ISO/IEC 23008-12), and references by which an item is a part of another one.
_PICTURES = frozenset(
    {b"hvc1", b"av01", b"avc1", b"vvc1", b"jpeg", b"j2k1", b"unci", b"grid", b"iovl", b"iden"}
)
_AUXILIARY, _DERIVED = (b"thmb", b"auxl"), b"dimg"
_MAX_ITEMS = 10_000
_GIF_FRAME, _GIF_EXTENSION = 0x2C, 0x21
_MPF = b"MPF\x00"
_SEARCHED_OF_JPEG = 1 << 17  # behind a block of EXIF and one of ICC
_MP_ENTRIES = 0xB002  # a tag: 16 bytes for each picture
_LARGE_THUMBNAIL = 0x010000  # of MP types
_MOST_TAGS, _MOST_ENTRY_BYTES = 16, 1600


def has_further_pictures(data: bytes, pages: Pages) -> bool:
    """Tell whether a file holds further pictures than those that are decoded.

    Args:
        data: the file.
        pages: as "channels", the pages of a TIFF are decoded too.
    """
    found = sniff(data) or ""
    tell = None if found == "tiff" and pages == "channels" else _TOLD_BY.get(found)
    try:
        return tell is not None and tell(data)
    except (ImageRejected, LookupError, ValueError, ArithmeticError, struct.error):
        return False


def _in_tiff(data: bytes) -> bool:
    try:
        return len(picture_pages(lambda length, offset: data[offset : offset + length], most=2)) > 1
    except ImageRejected as rejected:
        return rejected.reason == "unsupported"  # it describes pages that have no directory


def _in_gif(data: bytes) -> bool:
    """Tell whether a second image descriptor follows (GIF89a, 20)."""
    at, frames = 13 + _color_table_bytes(data[10]), 0
    while frames < 2 and data[at] in (_GIF_FRAME, _GIF_EXTENSION):
        if data[at] == _GIF_FRAME:
            frames += 1
            at += 11 + _color_table_bytes(data[at + 9])  # descriptor, table, and the size of a code
        else:
            at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    return frames > 1


def _color_table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _in_webp(data: bytes) -> bool:
    frames = (True for name, _, _ in webp_chunks.chunks(data) if name == b"ANMF")
    return sum(islice(frames, 2)) > 1


def _in_png(data: bytes) -> bool:
    for name, start, _ in png_chunks.chunks(data):
        if name in (b"acTL", b"IDAT"):
            return name == b"acTL" and int.from_bytes(data[start : start + 4], "big") > 1
    return False


def _in_heif(data: bytes) -> bool:
    """Tell whether there is a film of several frames, or an image that is shown beside the primary one."""
    for name, start, end in bounded_boxes(data, 0, len(data)):
        sizes = data.find(b"stsz", start, end) if name == b"moov" else -1
        if sizes >= 0 and _number(data, sizes + 12, 4) > 1:
            return True
    parts = heif_parts(data)
    if not parts.keys() >= {b"pitm", b"iinf"}:
        return False
    at = parts[b"pitm"][0]
    primary = _number(data, at + 4, 2 if not data[at] else 4)
    return bool({*_shown_items(data, *parts[b"iinf"])} - {primary, *_parts_of_others(data, parts)})


def _shown_items(data: bytes, start: int, end: int) -> Iterator[int]:
    """Yield the numbers of pictures that are not hidden (ISO/IEC 14496-12, 8.11.6)."""
    head = 6 if not data[start] else 8  # version, flags, number of items
    for name, at, _ in islice(bounded_boxes(data, start + head, end), _MAX_ITEMS):
        if name != b"infe" or data[at] < 2 or data[at + 3] & 1:
            continue
        wide = 4 if data[at] > 2 else 2
        if data[at + 6 + wide : at + 10 + wide] in _PICTURES:
            yield _number(data, at + 4, wide)


def _parts_of_others(data: bytes, parts: dict[bytes, tuple[int, int]]) -> Iterator[int]:
    """Yield the numbers of items that belong to another one (ISO/IEC 14496-12, 8.11.12)."""
    if b"iref" not in parts:
        return
    start, end = parts[b"iref"]
    wide = 4 if data[start] else 2
    for name, at, stop in bounded_boxes(data, start + 4, end):
        if name in _AUXILIARY:
            yield _number(data, at, wide)
        elif name == _DERIVED:
            yield from (_number(data, place, wide) for place in range(at + wide + 2, stop, wide))


def _in_jpeg(data: bytes) -> bool:
    """Tell whether an index of several pictures (CIPA DC-007) names one that is no thumbnail or gain map."""
    at = data.find(_MPF, 0, _SEARCHED_OF_JPEG) + len(_MPF)
    if at < len(_MPF):
        return False
    order = "<" if data[at : at + 2] == b"II" else ">"
    directory = at + struct.unpack_from(f"{order}I", data, at + 4)[0]
    (count,) = struct.unpack_from(f"{order}H", data, directory)
    for entry in range(directory + 2, directory + 2 + 12 * min(count, _MOST_TAGS), 12):
        tag, _, length, place = struct.unpack_from(f"{order}HHII", data, entry)
        if tag == _MP_ENTRIES:
            entries = range(at + place + 16, at + place + min(length, _MOST_ENTRY_BYTES), 16)
            kinds = {struct.unpack_from(f"{order}I", data, one)[0] & 0xFF0000 for one in entries}
            # Telephones state no type for a gain map.
            return bool(kinds - {0, _LARGE_THUMBNAIL}) or (0 in kinds and not read_header(data).has_gain_map)
    return False


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


_TOLD_BY: Final[dict[str, Callable[[bytes], bool]]] = {
    "tiff": _in_tiff,
    "gif": _in_gif,
    "webp": _in_webp,
    "png": _in_png,
    "avif": _in_heif,
    "heif": _in_heif,
    "jpeg": _in_jpeg,
}
