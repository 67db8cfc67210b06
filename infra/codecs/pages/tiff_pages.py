"""Find the pages of a TIFF by its directories, and write one as a file of its own, without decoding it.

A directory has an entry for each tag: tag, type, number of values, and the values or their place (TIFF 6.0,
section 2; BigTIFF has wider fields). A page of its own has the same tags but those that point to other
directories or describe the whole file, and its strips or tiles one after the other.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardmill.infra.codecs.formats import ImageRejected

ReadAt = Callable[[int, int], bytes]  # length, offset

_BYTES_OF_TYPE = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
_LETTERS = {3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}  # of whole numbers
_SUBFILE, _OFFSETS, _LENGTHS = 254, (273, 324), (279, 325)
_REDUCED_OR_MASK = 1 | 4  # bits of NewSubfileType
_DESCRIPTION = 270
# Of other directories, of JPEGs as TIFF 6.0 had them, and what describes all pages.
_LEFT_OUT = {_DESCRIPTION, 330, 34665, 34853, 40965, 50838, 50839}
_OLD_JPEG = {513, 519}
_MOST_PAGES = 1 << 20
_MOST_ENTRIES, _MOST_VALUE_BYTES = 4096, 64 << 20
_SHARED = 4  # strips may take so many times the length of the file, if they share bytes
# Descriptions of ImageJ and of tifffile, whose stacks beyond 4 GiB have one directory.
_DECLARED = re.compile(rb"ImageJ=.*?\nimages=(\d+)", re.DOTALL)
_ONE_OF_MANY = b'"truncated": true'


@dataclass(frozen=True, slots=True)
class _Form:
    """Byte order and widths of a TIFF."""

    order: str  # of struct
    big: bool

    @classmethod
    def of(cls, head: bytes) -> _Form:
        return cls("<" if head[:2] == b"II" else ">", head[2:4] in (b"+\x00", b"\x00+"))

    def number(self, data: bytes, letter: str, at: int = 0) -> int:
        found: int = struct.unpack_from(self.order + letter, data, at)[0]
        return found

    @property
    def pointer(self) -> str:
        return "Q" if self.big else "I"

    @property
    def counter(self) -> str:
        """Letter of the number of entries of a directory."""
        return "Q" if self.big else "H"

    @property
    def width(self) -> int:
        return 8 if self.big else 4

    @property
    def entry_bytes(self) -> int:
        return 4 + 2 * self.width


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tag and its values: as they are in the file, and their place."""

    type: int
    count: int
    content: bytes

    def numbers(self, form: _Form) -> Sequence[int]:
        letter = _LETTERS.get(self.type)
        if letter is None:
            raise _damaged(f"a tag of type {self.type} holds no whole numbers")
        return struct.unpack(f"{form.order}{self.count}{letter}", self.content)


def _damaged(words: str) -> ImageRejected:
    return ImageRejected("corrupt", f"not a sound TIFF file: {words}")


def picture_pages(read_at: ReadAt, most: int = 1 << 20) -> list[int]:
    """Return the offset of the directory of each page that is neither a thumbnail nor a mask.

    Args:
        read_at: reads the file.
        most: after so many pages no further one is looked for.

    Raises:
        ImageRejected: a directory is damaged or cut off, or the file describes more pages than it has.
    """
    head = read_at(16, 0)
    form = _Form.of(head)
    pages: list[int] = []
    seen: set[int] = set()
    declared = 0
    try:
        offset = form.number(head, form.pointer, 8 if form.big else 4)
        while offset and len(pages) < most:
            if offset in seen or len(seen) >= _MOST_PAGES:
                raise _damaged("its directories form a circle, or are too many")
            seen.add(offset)
            entries, following = _directory(read_at, form, offset, wanted={_SUBFILE, _DESCRIPTION})
            kind = entries[_SUBFILE].numbers(form)[0] if _SUBFILE in entries else 0
            if not kind & _REDUCED_OR_MASK:
                pages.append(offset)
            if len(seen) == 1:
                declared = _declared(entries.get(_DESCRIPTION, _NOTHING).content)
            offset = following
    except struct.error as error:
        raise ImageRejected("truncated", "the TIFF file ends early, within a directory") from error
    if declared > len(seen) and len(pages) < most:
        raise ImageRejected(
            "unsupported",
            f"a TIFF that describes more pages than it has directories ({len(seen):,}); save it as BigTIFF",
        )
    return pages


_NOTHING = _Entry(0, 0, b"")


def _declared(description: bytes) -> int:
    """Return how many pages a description tells of; 0 if it does not."""
    if _ONE_OF_MANY in description:
        return _MOST_PAGES + 1
    found = _DECLARED.match(description)
    return int(found[1]) if found else 0


def _directory(
    read_at: ReadAt, form: _Form, offset: int, wanted: set[int] | None = None
) -> tuple[dict[int, _Entry], int]:
    """Return the entries of a directory, maybe only some, and the offset of the next directory."""
    count_bytes = struct.calcsize(form.order + form.counter)
    count = form.number(read_at(count_bytes, offset), form.counter)
    if count > _MOST_ENTRIES:
        raise _damaged(f"a directory of {count:,} entries")
    table = read_at(count * form.entry_bytes + form.width, offset + count_bytes)
    entries: dict[int, _Entry] = {}
    for at in range(0, count * form.entry_bytes, form.entry_bytes):
        tag, kind = form.number(table, "H", at), form.number(table, "H", at + 2)
        if kind not in _BYTES_OF_TYPE or (wanted is not None and tag not in wanted):
            continue
        values = form.number(table, form.pointer, at + 4)
        size = values * _BYTES_OF_TYPE[kind]
        if size > _MOST_VALUE_BYTES:
            raise _damaged(f"the tag {tag} has {values:,} values")
        inner = at + 4 + form.width
        content = table[inner : inner + size]
        if size > form.width:
            content = read_at(size, form.number(table, form.pointer, inner))
        if len(content) < size:
            raise ImageRejected("truncated", "the TIFF file ends early, within a tag")
        entries.setdefault(tag, _Entry(kind, values, content))
    return entries, form.number(table, form.pointer, count * form.entry_bytes)


def tiff_page(data: bytes, pages: Sequence[int], number: int) -> bytes:
    """Return a page as a file of its own.

    Args:
        data: the file.
        pages: its ``picture_pages``.
        number: among them, from 0.

    Raises:
        ImageRejected: there is no such page, or it is damaged.
    """

    def read_at(length: int, offset: int) -> bytes:
        return data[offset : offset + length]

    form = _Form.of(data)
    if number >= len(pages):
        raise ImageRejected("corrupt", f"its page {number} is no longer there: it has {len(pages)}")
    entries, _ = _directory(read_at, form, pages[number])
    if _OLD_JPEG & entries.keys():
        raise ImageRejected(
            "unsupported", "a page with a JPEG in the form of TIFF 6.0; save it as PNG or TIFF"
        )
    strips = _strips(data, form, entries)
    kept = {tag: entry for tag, entry in sorted(entries.items()) if tag not in _LEFT_OUT}
    return _file(form, kept, strips)


def _strips(data: bytes, form: _Form, entries: dict[int, _Entry]) -> list[bytes]:
    """Return the strips or tiles of a page; an empty one is not stored."""
    offsets = next((entries[tag].numbers(form) for tag in _OFFSETS if tag in entries), None)
    lengths = next((entries[tag].numbers(form) for tag in _LENGTHS if tag in entries), None)
    if offsets is None or lengths is None or len(offsets) != len(lengths):
        raise ImageRejected("unsupported", "a page whose strips have no places or no lengths")
    if sum(lengths) > _SHARED * len(data):
        raise _damaged("its strips are longer than the file")
    strips = [data[at : at + length] for at, length in zip(offsets, lengths, strict=True)]
    if any(len(strip) < length for strip, length in zip(strips[:-1], lengths, strict=False)):
        raise ImageRejected("truncated", "the TIFF file ends early")
    return strips


def _file(form: _Form, entries: dict[int, _Entry], strips: Sequence[bytes]) -> bytes:
    """Write a TIFF of one page: head, directory, long values, strips."""
    order, pointer, width = form.order, form.pointer, form.width
    mark = b"II" if order == "<" else b"MM"
    if form.big:
        head = mark + struct.pack(f"{order}HHHQ", 43, 8, 0, 16)
    else:
        head = mark + struct.pack(f"{order}HI", 42, 8)
    places = struct.calcsize(f"{order}{len(strips)}{pointer}")
    directory_bytes = struct.calcsize(order + form.counter) + len(entries) * form.entry_bytes + width
    long_at = len(head) + directory_bytes

    def size_of(tag: int, entry: _Entry) -> int:
        size = places if tag in _OFFSETS else len(entry.content)
        return 0 if size <= width else size + size % 2

    strips_at = long_at + sum(size_of(tag, entry) for tag, entry in entries.items())
    offsets, at = [], strips_at
    for strip in strips:
        offsets.append(at if strip else 0)
        at += len(strip) + len(strip) % 2
    table = [struct.pack(order + form.counter, len(entries))]
    long_values: list[bytes] = []
    for tag, entry in entries.items():
        kind, count, content = entry.type, entry.count, entry.content
        if tag in _OFFSETS:
            kind, count = (16 if form.big else 4), len(strips)
            content = struct.pack(f"{order}{count}{pointer}", *offsets)
        table.append(struct.pack(f"{order}HH{pointer}", tag, kind, count))
        if size_of(tag, entry):
            table.append(struct.pack(order + pointer, long_at + sum(map(len, long_values))))
            long_values.append(content + b"\x00" * (len(content) % 2))
        else:
            table.append(content.ljust(width, b"\x00"))
    table.append(bytes(width))
    padded = (strip + b"\x00" * (len(strip) % 2) for strip in strips[:-1])
    return b"".join([head, *table, *long_values, *padded, *strips[-1:]])
