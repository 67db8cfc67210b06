"""Read the boxes of AVIF, HEIF (ISO/IEC 14496-12, 4.2) and JPEG 2000 (ISO/IEC 15444-1, annex I) files.

A box is its length in four bytes, its name in four bytes, and its content. The length 1 means that the length
stands in eight bytes behind the name, 0 that the box reaches to the end of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

_MAX_BOXES = 1_000


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
