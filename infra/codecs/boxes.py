"""The boxes of AVIF, HEIF (ISO/IEC 14496-12, 4.2) and JPEG 2000 (ISO/IEC 15444-1, annex I) files.

A box is its length in four bytes (1: in eight more behind the name; 0: to the end of the file), its name in
four bytes, and its content.
"""

from __future__ import annotations

from collections.abc import Iterator


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


def jp2_profile(data: bytes) -> bytes | None:
    """The ICC profile of a JPEG 2000 file; None where there is none."""
    for name, start, end in boxes(data, 0, len(data)):
        if name == b"jp2h":
            for inner, content, content_end in boxes(data, start, min(end, len(data))):
                if inner == b"colr" and data[content : content + 1] in (b"\x02", b"\x03"):
                    return data[content + 3 : content_end]
            return None
    return None
