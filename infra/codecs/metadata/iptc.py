"""Read some datasets of IPTC's Information Interchange Model (IIM 4.2), as Photoshop puts them into files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shardmill.infra.codecs.metadata.text import clean

BY_LINE: Final = 80
CREDIT: Final = 110
COPYRIGHT: Final = 116

_WANTED = frozenset({BY_LINE, CREDIT, COPYRIGHT})
_RESOURCE_OF_IPTC = 0x0404
_APPLICATION_RECORD = 2
_MAX_DATASETS = 1_000


def read_iptc(data: bytes) -> dict[int, str]:
    """Return the texts of the wanted datasets: number -> text; a repeated one is joined by "; "."""
    found: dict[int, list[str]] = {}
    for number, value in _datasets(data):
        if number in _WANTED and (text := clean(value)):
            found.setdefault(number, []).append(text)
    return {number: "; ".join(texts) for number, texts in found.items()}


def iptc_in(resources: bytes) -> bytes | None:
    """Return the IPTC block among the image resources of Photoshop, or None."""
    at = 0
    while resources[at : at + 4] == b"8BIM" and at + 12 <= len(resources):
        number = int.from_bytes(resources[at + 4 : at + 6], "big")
        name_bytes = resources[at + 6] + 1
        at += 6 + name_bytes + (name_bytes & 1)
        size = int.from_bytes(resources[at : at + 4], "big")
        if number == _RESOURCE_OF_IPTC:
            return resources[at + 4 : at + 4 + size]
        at += 4 + size + (size & 1)
    return None


def _datasets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of each dataset of the application record."""
    at = 0
    for _ in range(_MAX_DATASETS):
        if at + 5 > len(data) or data[at] != 0x1C:
            return
        record, number, size = data[at + 1], data[at + 2], int.from_bytes(data[at + 3 : at + 5], "big")
        if size & 0x8000:
            return  # a value longer than 32 KiB, which no text is
        if record == _APPLICATION_RECORD:
            yield number, data[at + 5 : at + 5 + size]
        at += 5 + size
