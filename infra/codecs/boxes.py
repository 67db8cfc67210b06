"""The boxes of AVIF, HEIF (ISO/IEC 14496-12, 4.2) and JPEG 2000 (ISO/IEC 15444-1, annex I) files.

A box is its length in four bytes (1: in eight more behind the name; 0: to the end of the file), its name in
four bytes, and its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_ICC_METHODS = (2, 3)  # a restricted and any profile


def boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(name, start and end of the content) of the boxes in ``data[start:end]``; the last may reach beyond."""
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


def ends_within_a_box(data: bytes) -> bool:
    """Whether a box reaches beyond the end of the file."""
    return any(end > len(data) for _, _, end in boxes(data, 0, len(data)))


def items_are_text(data: bytes) -> bool:
    """Whether the types and names of a HEIF's items (ISO/IEC 14496-12, 8.11.6) are text, as they must be."""
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
    """(start, end) of the content of the boxes of one name in these places, less so many bytes before it."""
    for start, end in places:
        for name, content, content_end in boxes(data, start, end):
            if name == wanted and content < min(content_end, len(data)):
                yield content + skipped, min(content_end, len(data))


def jp2_profile(data: bytes) -> bytes | None:
    """The ICC profile of a JPEG 2000 file; None where there is none."""
    for start, end in _within(_within([(0, len(data))], data, b"jp2h", 0), data, b"colr", 0):
        if data[start] in _ICC_METHODS:
            return data[start + 3 : end]
    return None
