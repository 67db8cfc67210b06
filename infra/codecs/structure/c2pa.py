"""Read what Content Credentials (C2PA 2.1) declare of an image's origin. No signature is checked.

A *store* is JUMBF (ISO/IEC 19566-5): boxes in boxes, each with a description. It holds *manifests*; the last
one is that of the image, the others are those of images that it was made from. A manifest holds *assertions*.
The assertion ``c2pa.actions`` says in CBOR what was done, and may name a digital source type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from shardmill.infra.codecs.structure.boxes import boxes

_STORE = bytes.fromhex("6332706100110010800000aa00389b71")  # c2pa
_ASSERTIONS = bytes.fromhex("6332617300110010800000aa00389b71")  # c2as
_HAS_LABEL = 0x02
_MAX_BOXES = 1_000
_MAX_DECLARED = 100
_MAX_VALUE_BYTES = 500

# The key as CBOR writes a text of 17 bytes (RFC 8949, 3.1), and the head of a text with its length.
_DECLARED = re.compile(
    rb"\x71digitalSourceType(?:(?P<short>[\x60-\x77])|\x78(?P<byte>.)|\x79(?P<word>..))", re.DOTALL
)


def is_store(jumbf: bytes) -> bool:
    """Tell whether a JUMBF box is a store of manifests."""
    return any(kind == _STORE for kind, _, _, _ in _described(jumbf, 0, len(jumbf)))


def declared_source_types(store: bytes) -> list[str]:
    """Return the digital source types that the newest manifest which names one declares."""
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
