"""Read the boxes of AVIF, HEIF (ISO/IEC 14496-12, 4.2) and JPEG 2000 (ISO/IEC 15444-1, annex I) files.

A box is its length in four bytes, its name in four bytes, and its content. The length 1 means that the length
stands in eight bytes behind the name, 0 that the box reaches to the end of the file. HEIF and AVIF files hold
EXIF and XMP as items (ISO/IEC 14496-12, 8.11).

Content Credentials (C2PA 2.1) declare an image's origin; no signature is checked. A *store* of them is JUMBF
(ISO/IEC 19566-5): boxes in boxes, each with a description. It holds *manifests*; the last one is that of the
image, the others are those of images that it was made from. A manifest holds *assertions*. The assertion
``c2pa.actions`` says in CBOR what was done, and may name a digital source type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

_STORE = bytes.fromhex("6332706100110010800000aa00389b71")  # c2pa
_ASSERTIONS = bytes.fromhex("6332617300110010800000aa00389b71")  # c2as
_HAS_LABEL = 0x02
_MAX_DECLARED = 100
_MAX_VALUE_BYTES = 500

# The key as CBOR writes a text of 17 bytes (RFC 8949, 3.1), and the head of a text with its length.
_DECLARED = re.compile(
    rb"\x71digitalSourceType(?:(?P<short>[\x60-\x77])|\x78(?P<byte>.)|\x79(?P<word>..))", re.DOTALL
)
_MAX_BOXES = 1_000
_C2PA_BOX = bytes.fromhex("d8fec3d61b0e483c92975828877ec481")
_MAX_ITEMS = 10_000
_MAX_EXTENTS = 100
_VERSION_BYTES = 4  # version and flags of a full box
_XMP_TYPES = (b"application/rdf+xml",)


def boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, and start and end of the content, of each box in ``data[start:end]``.

    The last box may reach beyond the end.
    """
    while start + 8 <= end:
        size, name, head = int.from_bytes(data[start : start + 4], "big"), data[start + 4 : start + 8], 8
        if size == 1:
            size, head = int.from_bytes(data[start + 8 : start + 16], "big"), 16
        if size == 0:
            size = end - start
        if size < head:
            return
        yield name, start + head, start + size
        start += size


def bounded_boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the first 1,000 boxes as ``boxes`` does, but let none reach beyond the end or beyond the data."""
    for name, opened, stop in islice(boxes(data, start, min(end, len(data))), _MAX_BOXES):
        yield name, opened, min(stop, end)


def heif_parts(data: bytes) -> dict[bytes, tuple[int, int]]:
    """Return name -> start and end of the content of each box in the box meta of a HEIF or AVIF file.

    Of several boxes of one name, the last one counts. Without a box meta there are none.
    """
    for name, start, end in bounded_boxes(data, 0, len(data)):
        if name == b"meta":
            return {part: (opened, stop) for part, opened, stop in bounded_boxes(data, start + 4, end)}
    return {}


def ends_within_a_box(data: bytes) -> bool:
    """Tell whether a box reaches beyond the end of the file."""
    return any(end > len(data) for _, _, end in boxes(data, 0, len(data)))


def items_are_text(data: bytes) -> bool:
    """Tell whether the types and names of a HEIF's items (ISO/IEC 14496-12, 8.11.6) are text."""
    for information in _within(_within([(0, len(data))], data, b"meta", 4), data, b"iinf", 0):
        start = information[0] + (6 if data[information[0]] == 0 else 8)  # version, flags, number of items
        for _, item, end in boxes(data, start, information[1]):
            # version, flags, number of the item, protection; then its type and its name
            text = data[item + (8 if data[item : item + 1] < b"\x03" else 10) : end]
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                return False
    return True


def _within(
    places: Iterable[tuple[int, int]], data: bytes, wanted: bytes, skipped: int
) -> Iterator[tuple[int, int]]:
    """Yield start and end of the content of each box of one name, without the first ``skipped`` bytes.

    Args:
        places: starts and ends of the parts of the file that are searched.
        data: the file.
        wanted: the name.
        skipped: bytes before the content that matters.
    """
    for start, end in places:
        for name, content, content_end in boxes(data, start, end):
            if name == wanted and content < min(content_end, len(data)):
                yield content + skipped, min(content_end, len(data))


def exif_and_xmp(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the EXIF block, which begins with its TIFF header, and the XMP packet; each may be None."""
    parts = heif_parts(data)
    if b"iinf" not in parts or b"iloc" not in parts:
        return None, None
    exif, xmp = _numbers(data, *parts[b"iinf"])
    wanted = {number for number in (exif, xmp) if number is not None}
    idat = parts.get(b"idat", (0, 0))
    found = _contents(data, parts[b"iloc"], idat, wanted) if wanted else {}
    block = found.get(exif, b"") if exif is not None else b""
    # The block begins with the distance to its TIFF header.
    tiff = block[4 + int.from_bytes(block[:4], "big") :] if len(block) > 4 else None
    return tiff, found.get(xmp) if xmp is not None else None


def c2pa_store(data: bytes) -> bytes | None:
    """Return the store of C2PA manifests, or None."""
    for name, start, end in bounded_boxes(data, 0, len(data)):
        if name == b"uuid" and data[start : start + 16] == _C2PA_BOX:
            purpose = data.find(b"\x00", start + 16 + _VERSION_BYTES, end)
            if purpose >= 0 and data[start + 16 + _VERSION_BYTES : purpose] == b"manifest":
                return data[purpose + 1 + 8 : end]
    return None


def _numbers(data: bytes, start: int, end: int) -> tuple[int | None, int | None]:
    """Return the numbers of the first item of EXIF and of the first of XMP."""
    exif = xmp = None
    head = _VERSION_BYTES + (2 if data[start : start + 1] == b"\x00" else 4)
    for name, at, stop in islice(boxes(data, start + head, end), _MAX_ITEMS):
        version = data[at] if at < len(data) else 0
        if name != b"infe" or version < 2:
            continue
        wide = 4 if version > 2 else 2
        number = int.from_bytes(data[at + 4 : at + 4 + wide], "big")
        kind = at + 4 + wide + 2
        if data[kind : kind + 4] == b"Exif" and exif is None:
            exif = number
        elif data[kind : kind + 4] == b"mime" and xmp is None:
            texts = data[kind + 4 : min(stop, end)].split(b"\x00", 2)  # name, type of the content
            xmp = number if len(texts) > 1 and texts[1] in _XMP_TYPES else None
    return exif, xmp


def _contents(
    data: bytes, iloc: tuple[int, int], idat: tuple[int, int], wanted: set[int]
) -> dict[int, bytes]:
    """Return number -> content of the wanted items; without those that are longer than the file."""
    table = data[iloc[0] : iloc[1]]
    if len(table) < 8 or table[0] > 2:
        return {}
    version = table[0]
    sizes = [table[4] >> 4, table[4] & 15, table[5] >> 4, table[5] & 15 if version else 0]
    fields = _Fields(table, 6)
    found: dict[int, bytes] = {}
    for _ in range(min(fields.take(4 if version == 2 else 2), _MAX_ITEMS)):
        number = fields.take(4 if version == 2 else 2)
        method = fields.take(2) & 15 if version else 0
        fields.take(2)  # the file that holds it, which is this one
        base = fields.take(sizes[2])
        extents = []
        for _ in range(min(fields.take(2), _MAX_EXTENTS)):
            fields.take(sizes[3])
            extents.append((base + fields.take(sizes[0]), fields.take(sizes[1])))
        if fields.at > len(table):
            return found
        is_possible = sum(size for _, size in extents) <= len(data)
        if number in wanted and number not in found and method in (0, 1) and is_possible:
            begin = idat[0] if method else 0
            found[number] = b"".join(data[begin + at : begin + at + size] for at, size in extents)
    return found


class _Fields:
    """Numbers that stand one after the other.

    Attributes:
        at: place of the next; beyond the end if there were too few.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def take(self, size: int) -> int:
        """Return the next number of a size (bytes)."""
        self.at += size
        return int.from_bytes(self._data[self.at - size : self.at], "big")


def is_store(jumbf: bytes) -> bool:
    """Tell whether a JUMBF box is a store of manifests."""
    return any(kind == _STORE for kind, _, _, _ in _described(jumbf, 0, len(jumbf)))


def declared_source_types(store: bytes) -> list[str]:
    """Return the digital source types in the newest manifest that names any."""
    manifests = [
        (start, end)
        for kind, _, opened, stop in _described(store, 0, len(store))
        if kind == _STORE
        for _, _, start, end in _described(store, opened, stop)
    ]
    for start, end in reversed(manifests):
        if found := list(islice(_declared_in(store, start, end), _MAX_DECLARED)):
            return found
    return []


def _declared_in(store: bytes, start: int, end: int) -> Iterator[str]:
    for kind, _, opened, stop in _described(store, start, end):
        if kind != _ASSERTIONS:
            continue
        for _, label, begin, finish in _described(store, opened, stop):
            if label.startswith(b"c2pa.actions"):
                yield from _named(store[begin:finish])


def _described(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, bytes, int, int]]:
    """Yield type, label, and start and end of the content, of each JUMBF box in ``data[start:end]``."""
    for count, (name, opened, stop) in enumerate(boxes(data, start, min(end, len(data)))):
        if count == _MAX_BOXES:
            return
        stop = min(stop, end)
        description = next(boxes(data, opened, stop), None) if name == b"jumb" else None
        if description is None or description[0] != b"jumd":
            continue
        _, at, content = description
        content = min(content, stop)
        kind, toggles = data[at : at + 16], data[at + 16 : at + 17]
        has_label = bool(toggles) and bool(toggles[0] & _HAS_LABEL)
        label = data[at + 17 : content].partition(b"\x00")[0] if has_label else b""
        yield kind, label, content, stop


def _named(cbor: bytes) -> Iterator[str]:
    """Yield the values of all keys ``digitalSourceType``, each cut to ``_MAX_VALUE_BYTES``.

    The lengths of damaged values may overlap.
    """
    for found in _DECLARED.finditer(cbor):
        if found["short"]:
            size = found["short"][0] - 0x60
        else:
            size = int.from_bytes(found["byte"] or found["word"], "big")
        yield cbor[found.end() : found.end() + min(size, _MAX_VALUE_BYTES)].decode("utf-8", "replace")
