"""Find the blocks of metadata in an image file, without decoding it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shardmill.infra.codecs.jpeg.segments import header_segments
from shardmill.infra.codecs.metadata import exif, heif_items
from shardmill.infra.codecs.metadata.c2pa import is_store
from shardmill.infra.codecs.metadata.iptc import iptc_in
from shardmill.infra.codecs.structure import png_chunks, webp_chunks

_EXIF, _XMP = b"Exif\x00\x00", b"http://ns.adobe.com/xap/1.0/\x00"
_PHOTOSHOP = b"Photoshop 3.0\x00"
_XMP_KEYWORD = b"XML:com.adobe.xmp\x00"
_MAX_INFLATED = 1 << 20
# Of a part of a JUMBF box in APP11 (ISO/IEC 19566-5, annex D): "JP", number of the box, number of the part.
_PART_BYTES = 8
_SHORT_HEAD, _LONG_HEAD = 8, 16  # length and name of a box, which every part repeats


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a file, each None if there is none.

    Attributes:
        exif: begins with a TIFF header, maybe after ``Exif``.
        xmp: an XMP packet.
        iptc: datasets of IPTC's IIM.
        c2pa: a store of C2PA manifests, in JUMBF.
    """

    exif: bytes | None = None
    xmp: bytes | None = None
    iptc: bytes | None = None
    c2pa: bytes | None = None


def find_blocks(data: bytes, format_: str) -> Blocks | None:
    """Return the blocks of a file; None if files of this format are not searched.

    Args:
        data: the file.
        format_: as ``shardmill.infra.codecs.sniff`` names it.
    """
    find = _BY_FORMAT.get(format_)
    return find(data) if find is not None else None


def _in_jpeg(data: bytes) -> Blocks:
    found: dict[str, bytes] = {}
    parts: dict[bytes, dict[int, bytes]] = {}
    for marker, start, end in header_segments(data):
        if marker == 0xE1:
            if data.startswith(_EXIF, start):
                found.setdefault("exif", data[start:end])
            elif data.startswith(_XMP, start):
                found.setdefault("xmp", data[start + len(_XMP) : end])
        elif marker == 0xED and data.startswith(_PHOTOSHOP, start):
            block = iptc_in(data[start + len(_PHOTOSHOP) : end])
            if block is not None:
                found.setdefault("iptc", block)
        elif marker == 0xEB and data.startswith(b"JP", start) and end - start > _PART_BYTES + _SHORT_HEAD:
            number = int.from_bytes(data[start + 4 : start + 8], "big")
            parts.setdefault(data[start + 2 : start + 4], {})[number] = data[start + _PART_BYTES : end]
    for of_box in parts.values():
        box = _joined(of_box)
        if is_store(box):
            found["c2pa"] = box
            break
    return Blocks(**found)


def _joined(parts: Mapping[int, bytes]) -> bytes:
    """Join the parts of a box: the head of the box stands in front of each."""
    first, *others = (parts[number] for number in sorted(parts))
    head = _LONG_HEAD if first[:4] == b"\x00\x00\x00\x01" else _SHORT_HEAD
    return first + b"".join(part[head:] for part in others)


def _in_png(data: bytes) -> Blocks:
    found: dict[str, bytes] = {}
    for name, start, end in png_chunks.chunks(data):
        if name == b"eXIf":
            found.setdefault("exif", data[start:end])
        elif name == b"caBX":
            found.setdefault("c2pa", data[start:end])
        elif name == b"iTXt" and data.startswith(_XMP_KEYWORD, start) and "xmp" not in found:
            # The first counts even if it is damaged: a file of many would be inflated many times over.
            found["xmp"] = _text_of(data[start + len(_XMP_KEYWORD) : end]) or b""
    return _with_store(found)


def _text_of(chunk: bytes) -> bytes | None:
    """Return the text of an iTXt chunk behind its keyword; None if it is compressed and damaged or long."""
    compressed, rest = chunk[:1] == b"\x01", chunk[2:].split(b"\x00", 2)  # language, translated keyword, text
    if len(rest) < 3:
        return None
    if not compressed:
        return rest[2]
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(rest[2], _MAX_INFLATED)
    except zlib.error:
        return None
    return text if inflate.eof else None


def _in_webp(data: bytes) -> Blocks:
    names = {b"EXIF": "exif", b"XMP ": "xmp", b"C2PA": "c2pa"}
    found: dict[str, bytes] = {}
    for name, start, end in webp_chunks.chunks(data):
        if name in names:
            found.setdefault(names[name], data[start:end])
    return _with_store(found)


def _in_tiff(data: bytes) -> Blocks:
    tags = exif.read_exif(data).values
    found = {"exif": data}
    found |= {
        name: tags[tag]
        for name, tag in (("xmp", exif.XMP), ("iptc", exif.IPTC), ("c2pa", exif.C2PA))
        if tag in tags
    }
    return _with_store(found)


def _in_heif(data: bytes) -> Blocks:
    tiff, packet = heif_items.exif_and_xmp(data)
    return Blocks(tiff, packet, None, heif_items.c2pa_store(data))


def _with_store(found: dict[str, bytes]) -> Blocks:
    """Return the blocks, without placeholders for a C2PA store."""
    if "c2pa" in found and not is_store(found["c2pa"]):
        del found["c2pa"]
    return Blocks(**found)


_BY_FORMAT: Final[Mapping[str, Callable[[bytes], Blocks]]] = {
    "jpeg": _in_jpeg,
    "png": _in_png,
    "webp": _in_webp,
    "tiff": _in_tiff,
    "avif": _in_heif,
    "heif": _in_heif,
}
