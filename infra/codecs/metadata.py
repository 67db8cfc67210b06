"""Metadata of image files: what a file says of itself, found without decoding it, and how it is removed.

A file says when and with which camera it was taken, its licence and attribution, and how it was made.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shardmill.infra.codecs.formats import sniff
from shardmill.infra.codecs.jpeg import segments
from shardmill.infra.codecs.structure import exif, png_chunks, texts, webp_chunks, xmp
from shardmill.infra.codecs.structure.boxes import c2pa_store, declared_source_types, exif_and_xmp, is_store
from shardmill.infra.codecs.structure.exif import NO_TAGS, read_exif
from shardmill.infra.codecs.structure.geotiff import crs_in, transform_in
from shardmill.infra.codecs.structure.texts import clean, iptc_in, iso_time, read_iptc
from shardmill.infra.codecs.structure.xmp import Properties, read_xmp

# Terms of IPTC's NewsCodes "Digital Source Type", and one of C2PA, for what generative models made.
_AI_MADE = frozenset({
    "trainedAlgorithmicMedia", "compositeWithTrainedAlgorithmicMedia", "compositeSynthetic",
    "trainedAlgorithmicData",
})  # fmt: skip
_BY_LOWER = {term.lower(): term for term in _AI_MADE}


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a file says of itself; None for what it does not tell.

    Attributes:
        captured_at: when the picture was taken, ISO 8601, with its distance from UTC if the file tells it.
        camera_make, camera_model: of the camera.
        gps_present: the file tells a position; which one is not read.
        c2pa_present: the file has Content Credentials (C2PA).
        digital_source_type: term of IPTC's NewsCodes, such as "trainedAlgorithmicMedia".
        licence: address or terms of a licence.
        rights: copyright notice.
        attribution: credit line.
        creator: who made it; several names are joined by "; ".
        geo_transform: the six numbers that place the pixels of a GeoTIFF, joined by spaces.
        geo_crs: its coordinate reference system, such as "EPSG:32633".
    """

    captured_at: str | None = None
    camera_make: str | None = None
    camera_model: str | None = None
    gps_present: bool | None = None
    c2pa_present: bool | None = None
    digital_source_type: str | None = None
    licence: str | None = None
    rights: str | None = None
    attribution: str | None = None
    creator: str | None = None
    geo_transform: str | None = None
    geo_crs: str | None = None

    @property
    def is_ai_made(self) -> bool:
        """Whether the file declares that a generative model made it, or a part of it."""
        return self.digital_source_type in _AI_MADE


NOTHING = Metadata()


def read_metadata(data: bytes) -> Metadata:
    """Read what a file says of itself. Damaged metadata tell nothing; no error is raised."""
    find = _FINDERS.get(sniff(data) or "")
    if find is None:
        return NOTHING
    blocks = find(data)
    tags = read_exif(blocks.exif) if blocks.exif else NO_TAGS
    packet: Properties = read_xmp(blocks.xmp) if blocks.xmp else {}
    datasets = read_iptc(blocks.iptc) if blocks.iptc else {}
    declared = declared_source_types(blocks.c2pa) if blocks.c2pa else []
    of_tiff, order = blocks.exif is data, "<" if data[:2] == b"II" else ">"
    placed = transform_in(tags.values, order) if of_tiff else None

    def first(*names: str) -> str | None:
        return next((found for name in names if (found := clean(packet.get(name, "")))), None)

    return Metadata(
        captured_at=tags.taken_at
        or iso_time(packet.get(xmp.TAKEN_AT))
        or iso_time(packet.get(xmp.DATE_CREATED)),
        camera_make=tags.text(exif.MAKE) or first(xmp.MAKE),
        camera_model=tags.text(exif.MODEL) or first(xmp.MODEL),
        gps_present=tags.has_position or xmp.LATITUDE in packet,
        c2pa_present=blocks.c2pa is not None,
        digital_source_type=_source_type([*declared, packet.get(xmp.SOURCE_TYPE, "")]),
        licence=first(xmp.CC_LICENCE, xmp.WEB_STATEMENT, xmp.USAGE_TERMS),
        rights=first(xmp.RIGHTS) or tags.text(exif.COPYRIGHT) or datasets.get(texts.IPTC_COPYRIGHT),
        attribution=first(xmp.CREDIT, xmp.CC_ATTRIBUTION) or datasets.get(texts.IPTC_CREDIT),
        creator=first(xmp.CREATOR) or tags.text(exif.ARTIST) or datasets.get(texts.IPTC_BY_LINE),
        geo_transform=" ".join(map(repr, placed)) if placed else None,
        geo_crs=crs_in(tags.values, order) if of_tiff else None,
    )


def _source_type(declared: list[str]) -> str | None:
    """Return the term that counts: the first for what a model made, else the first.

    Args:
        declared: addresses whose last part is a term, or terms.
    """
    terms = [clean(text.strip().rstrip("/").rpartition("/")[2].rpartition(":")[2]) for text in declared]
    known = [_BY_LOWER.get(term.lower(), term) for term in terms if term]
    return next((term for term in known if term in _AI_MADE), known[0] if known else None)


_EXIF, _XMP = b"Exif\x00\x00", b"http://ns.adobe.com/xap/1.0/\x00"
_PHOTOSHOP = b"Photoshop 3.0\x00"
_XMP_KEYWORD = b"XML:com.adobe.xmp\x00"
_MAX_INFLATED = 1 << 20
# Of a part of a JUMBF box in APP11 (ISO/IEC 19566-5, annex D): "JP", number of the box, number of the part.
_PART_BYTES = 8
_SHORT_HEAD, _LONG_HEAD = 8, 16  # length and name of a box, which every part repeats


@dataclass(frozen=True, slots=True)
class _Blocks:
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


def _in_jpeg(data: bytes) -> _Blocks:
    found: dict[str, bytes] = {}
    parts: dict[bytes, dict[int, bytes]] = {}
    for marker, start, end in segments.header_segments(data):
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
    return _Blocks(**found)


def _joined(parts: Mapping[int, bytes]) -> bytes:
    """Join the parts of a box: the head of the box stands in front of each."""
    first, *others = (parts[number] for number in sorted(parts))
    head = _LONG_HEAD if first[:4] == b"\x00\x00\x00\x01" else _SHORT_HEAD
    return first + b"".join(part[head:] for part in others)


def _in_png(data: bytes) -> _Blocks:
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


def _in_webp(data: bytes) -> _Blocks:
    names = {b"EXIF": "exif", b"XMP ": "xmp", b"C2PA": "c2pa"}
    found: dict[str, bytes] = {}
    for name, start, end in webp_chunks.chunks(data):
        if name in names:
            found.setdefault(names[name], data[start:end])
    return _with_store(found)


def _in_tiff(data: bytes) -> _Blocks:
    tags = exif.read_exif(data).values
    found = {"exif": data}
    found |= {
        name: tags[tag]
        for name, tag in (("xmp", exif.XMP), ("iptc", exif.IPTC), ("c2pa", exif.C2PA))
        if tag in tags
    }
    return _with_store(found)


def _in_heif(data: bytes) -> _Blocks:
    tiff, packet = exif_and_xmp(data)
    return _Blocks(tiff, packet, None, c2pa_store(data))


def _with_store(found: dict[str, bytes]) -> _Blocks:
    """Return the blocks, without placeholders for a C2PA store."""
    if "c2pa" in found and not is_store(found["c2pa"]):
        del found["c2pa"]
    return _Blocks(**found)


_FINDERS: Final[Mapping[str, Callable[[bytes], _Blocks]]] = {
    "jpeg": _in_jpeg,
    "png": _in_png,
    "webp": _in_webp,
    "tiff": _in_tiff,
    "avif": _in_heif,
    "heif": _in_heif,
}


def _whole_jpeg(data: bytes) -> bytes | None:
    picture = segments.without_metadata(data)
    return picture if picture is not None and picture.endswith(segments.EOI) else None


_STRIPPERS = {
    "jpeg": _whole_jpeg,
    "png": png_chunks.without_metadata,
    "webp": webp_chunks.without_metadata,
}


def without_metadata(data: bytes, format_: str) -> bytes | None:
    """Copy the picture's own bytes into a new file, without decoding a pixel.

    The colour profile and the orientation go too. The caller makes sure that neither is needed.

    Args:
        data: a file.
        format_: "jpeg", "png" or "webp"; other formats cannot be handled.

    Returns:
        The file without its metadata; None for another format, an animated WebP or a damaged file.
    """
    strip = _STRIPPERS.get(format_)
    return strip(data) if strip is not None else None
