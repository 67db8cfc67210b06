"""Image files that say something of themselves: EXIF, XMP, IPTC and Content Credentials (C2PA)."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.samples.images.photos import picture

NEWSCODES = "http://cv.iptc.org/newscodes/digitalsourcetype/"
NAMESPACES = {
    "dc": "http://purl.org/dc/elements/1.1/",
    "xmpRights": "http://ns.adobe.com/xap/1.0/rights/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "exif": "http://ns.adobe.com/exif/1.0/",
    "tiff": "http://ns.adobe.com/tiff/1.0/",
    "Iptc4xmpExt": "http://iptc.org/std/Iptc4xmpExt/2008-02-29/",
    "cc": "http://creativecommons.org/ns#",
}
_XMP_TAG, _IPTC_TAG, _C2PA_TAG = 700, 33_723, 0xCD41
_EXIF, _GPS = 0x8769, 0x8825
_C2PA_BOX = bytes.fromhex("d8fec3d61b0e483c92975828877ec481")


def exif(
    top: Mapping[int, Any] = {}, inner: Mapping[int, Any] = {}, position: Mapping[int, Any] = {}
) -> Image.Exif:
    """EXIF with tags of its first, its EXIF and its GPS directory."""
    block = Image.Exif()
    for tag, value in top.items():
        block[tag] = value
    if inner:
        block[_EXIF] = dict(inner)
    if position:
        block[_GPS] = dict(position)
    loaded = Image.Exif()
    loaded.load(block.tobytes())
    return loaded


def camera_exif() -> Image.Exif:
    """EXIF as a camera with a satellite receiver writes it."""
    return exif(
        {0x010F: "Acme", 0x0110: "One 2 ", 0x013B: "Ann", 0x8298: "© Ann 2021"},
        {0x9003: "2021:03:04 05:06:07", 0x9011: "+02:00"},
        {1: "N", 2: (12.0, 30.0, 0.0), 3: "E", 4: (3.0, 0.0, 0.0)},
    )


def xmp(properties: Mapping[str, str | list[str]], *, as_elements: bool = True) -> bytes:
    """An XMP packet; lists become ordered lists, texts elements or attributes."""
    spaces = " ".join(f'xmlns:{prefix}="{address}"' for prefix, address in NAMESPACES.items())
    attributes, elements = [], []
    for name, value in properties.items():
        if isinstance(value, list):
            items = "".join(f"<rdf:li>{one}</rdf:li>" for one in value)
            elements.append(f"<{name}><rdf:Seq>{items}</rdf:Seq></{name}>")
        elif as_elements:
            elements.append(f"<{name}>{value}</{name}>")
        else:
            attributes.append(f'{name}="{value}"')
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        f'<rdf:Description rdf:about="" {spaces} {" ".join(attributes)}>{"".join(elements)}'
        '</rdf:Description></rdf:RDF></x:xmpmeta>\n  <?xpacket end="w"?>'
    ).encode()


def iptc(datasets: Iterable[tuple[int, bytes]]) -> bytes:
    """Datasets of the application record of IPTC's IIM."""
    return b"".join(struct.pack(">BBBH", 0x1C, 2, number, len(value)) + value for number, value in datasets)


def photoshop(block: bytes) -> bytes:
    """An IPTC block among image resources, behind another one with a name."""
    other = b"8BIM\x03\xed\x05rnote" + struct.pack(">I", 3) + b"abc\x00"
    return other + b"8BIM\x04\x04\x00\x00" + struct.pack(">I", len(block)) + block


def box(name: bytes, content: bytes) -> bytes:
    """A box of ISO/IEC 14496-12."""
    return struct.pack(">I", 8 + len(content)) + name + content


def jumbf(kind: bytes, label: bytes, content: bytes) -> bytes:
    """A JUMBF box with its description (ISO/IEC 19566-5); ``kind`` begins its type."""
    described = kind + bytes.fromhex("0010 8000 00AA 0038 9B71".replace(" ", "")) + b"\x03" + label + b"\x00"
    return box(b"jumb", box(b"jumd", described) + content)


def cbor_text(text: str) -> bytes:
    """A text of CBOR (RFC 8949)."""
    data = text.encode()
    size = len(data)
    if size < 24:
        return bytes([0x60 + size]) + data
    return (struct.pack(">BB", 0x78, size) if size < 256 else struct.pack(">BH", 0x79, size)) + data


def manifest(label: bytes, *declared: str) -> bytes:
    """A C2PA manifest whose actions have these digital source types; "" for an action without one."""
    actions = b"\x67actions" + bytes([0x80 + len(declared)])
    for each in declared:
        kind = cbor_text("digitalSourceType") + cbor_text(each) if each else b""
        actions += bytes([0xA1 + bool(each)]) + cbor_text("action") + cbor_text("c2pa.created") + kind
    assertion = jumbf(b"cbor\x00\x11", b"c2pa.actions.v2", box(b"cbor", b"\xa1" + actions))
    hashes = jumbf(
        b"cbor\x00\x11", b"c2pa.hash.data", box(b"cbor", b"\xa1" + cbor_text("alg") + cbor_text("sha256"))
    )
    return jumbf(b"c2ma\x00\x11", label, jumbf(b"c2as\x00\x11", b"c2pa.assertions", hashes + assertion))


def store(*manifests: bytes) -> bytes:
    """A store of C2PA manifests; the last is that of the image."""
    return jumbf(b"c2pa\x00\x11", b"c2pa", b"".join(manifests))


def image_file(
    format_: str,
    *,
    exif_block: Image.Exif | None = None,
    packet: bytes | None = None,
    datasets: bytes | None = None,
    credentials: bytes | None = None,
    seed: int = 1,
) -> bytes:
    """A small image file with metadata; IPTC only in JPEG and TIFF."""
    image, sink = Image.fromarray(picture(seed)), io.BytesIO()
    if format_ == "tiff":
        return _tiff(image, exif_block, {_XMP_TAG: packet, _IPTC_TAG: datasets, _C2PA_TAG: credentials})
    more: dict[str, Any] = {} if exif_block is None else {"exif": exif_block}
    if format_ == "png":
        more["pnginfo"] = PngInfo()
        if packet:
            more["pnginfo"].add_itxt("XML:com.adobe.xmp", packet.decode(), zip=True)
    elif packet:
        more["xmp"] = packet
    image.save(sink, format_, **more)
    data = sink.getvalue()
    if datasets is not None:
        data = with_segment(data, 0xED, b"Photoshop 3.0\x00" + photoshop(datasets))
    return data if credentials is None else _WITH_STORE[format_](data, credentials)


def _tiff(image: Image.Image, block: Image.Exif | None, tags: Mapping[int, bytes | None]) -> bytes:
    block, sink = block or exif(), io.BytesIO()
    for tag, value in tags.items():
        if value:
            block[tag] = value
    image.save(sink, "tiff", exif=block)
    return sink.getvalue()


def with_segment(data: bytes, marker: int, content: bytes) -> bytes:
    """A JPEG with a further segment behind its first one."""
    at = 4 + int.from_bytes(data[4:6], "big")
    return data[:at] + bytes([0xFF, marker]) + struct.pack(">H", 2 + len(content)) + content + data[at:]


def _store_in_jpeg(data: bytes, credentials: bytes, part_bytes: int = 100) -> bytes:
    """The store in several segments; each begins with the head of the box."""
    head, content = credentials[:8], credentials[8:]
    parts = [content[at : at + part_bytes] for at in range(0, len(content), part_bytes)]
    for number in range(len(parts), 0, -1):  # each is put before those behind it
        segment = b"JP" + struct.pack(">HI", 1, number) + head + parts[number - 1]
        data = with_segment(data, 0xEB, segment)
    return data


def _store_in_png(data: bytes, credentials: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(b"caBX" + credentials))
    return data[:33] + struct.pack(">I", len(credentials)) + b"caBX" + credentials + checksum + data[33:]


def _store_in_webp(data: bytes, credentials: bytes) -> bytes:
    chunk = b"C2PA" + struct.pack("<I", len(credentials)) + credentials + bytes(len(credentials) & 1)
    return data[:4] + struct.pack("<I", len(data) - 8 + len(chunk)) + data[8:] + chunk


def _store_in_avif(data: bytes, credentials: bytes) -> bytes:
    return data + box(b"uuid", _C2PA_BOX + bytes(4) + b"manifest\x00" + bytes(8) + credentials)


_WITH_STORE = {
    "jpeg": _store_in_jpeg,
    "png": _store_in_png,
    "webp": _store_in_webp,
    "avif": _store_in_avif,
}
