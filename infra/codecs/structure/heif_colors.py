"""Read what the boxes of an AVIF or HEIF file say of the samples of its primary image (ISO/IEC 23008-12)."""

from __future__ import annotations

from dataclasses import dataclass

from shardmill.infra.codecs.structure.boxes import bounded_boxes, heif_parts

_MAX_ITEMS = 10_000
_MOST_BITS = 16  # that decoders return
GAIN_MAP_OF_APPLE = b"urn:com:apple:photo:2020:aux:hdrgainmap"  # in HEIF and JPEG


@dataclass(frozen=True, slots=True)
class HeifColors:
    """What boxes say of the samples of an AVIF or HEIF file's primary image.

    Attributes:
        nclx: content of its box colr of type nclx, or None.
        bits: bits of a sample.
        has_gain_map: a further item brightens the picture for HDR viewers.
    """

    nclx: bytes | None
    bits: int
    has_gain_map: bool


def heif_colors(data: bytes) -> HeifColors:
    """Read what boxes say of the samples of an AVIF or HEIF file's primary image."""
    properties = _primary_properties(data)
    colors = [content for name, content in properties if name == b"colr" and content[:4] == b"nclx"]
    bits = coded = 0
    for name, content in properties:
        if name == b"pixi" and len(content) > 5:
            bits = max(content[5 : 5 + content[4]], default=0)
        elif name == b"av1C" and len(content) > 2:
            coded = (12 if content[2] & 0x20 else 10) if content[2] & 0x40 else 8
        elif name == b"hvcC" and len(content) > 17:
            coded = (content[17] & 7) + 8
    bits = min(coded or bits or 8, _MOST_BITS)  # only a picture of tiles has no codec of its own
    parts, nothing = heif_parts(data), (0, 0)
    has_map = data.find(b"tmap", *parts.get(b"iinf", nothing)) >= 0
    has_map = has_map or data.find(GAIN_MAP_OF_APPLE, *parts.get(b"iprp", nothing)) >= 0
    return HeifColors(colors[0] if colors else None, bits, has_map)


def _primary_properties(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return name and content of each property of the primary image (ISO/IEC 23008-12, 9.3)."""
    parts = heif_parts(data)
    if b"pitm" not in parts or b"iprp" not in parts:
        return []
    at = parts[b"pitm"][0]
    primary = _number(data, at + 4, 2 if data[at : at + 1] == b"\x00" else 4)
    boxes_of_all, numbers = [], []
    for name, start, end in bounded_boxes(data, *parts[b"iprp"]):
        if name == b"ipco":
            boxes_of_all = list(bounded_boxes(data, start, end))
        elif name == b"ipma":  # several, of different versions, are allowed
            numbers += _associated(data, start, end, primary)
    chosen = [boxes_of_all[number - 1] for number in numbers if 0 < number <= len(boxes_of_all)]
    return [(name, data[start:end]) for name, start, end in chosen]


def _associated(data: bytes, start: int, end: int, item: int) -> list[int]:
    """Return the numbers of an item's properties, from 1, out of a box ipma."""
    version, flags = _number(data, start, 1), _number(data, start + 1, 3)
    wide, at = 2 if flags & 1 else 1, start + 8
    for _ in range(min(_number(data, start + 4, 4), _MAX_ITEMS)):
        length = 2 if version < 1 else 4
        number, count = _number(data, at, length), _number(data, at + length, 1)
        at += length + 1
        if at + count * wide > end:
            return []
        if number == item:
            mask = 0x7FFF if wide == 2 else 0x7F  # the highest bit says whether a reader must know it
            return [_number(data, at + place * wide, wide) & mask for place in range(count)]
        at += count * wide
    return []


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")
