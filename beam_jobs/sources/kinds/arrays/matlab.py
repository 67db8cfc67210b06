"""The numbers in files of MATLAB of level 5, by their headers, as those of SVHN.

The format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np

from shardmill.beam_jobs.sources.rows.unpacked import Inflated

_HEADER_BYTES, _ENDIAN_AT = 128, 126
_HDF5 = b"MATLAB 7.3"
_COMPRESSED, _MATRIX = 15, 14
_FIRST_OF_NUMBERS, _LAST_OF_NUMBERS, _IS_COMPLEX = 6, 15, 0x0800
_START_BYTES = 4096  # longer than the header of a variable
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


@dataclass(frozen=True)
class Variable:
    """A variable of numbers, in Fortran order.

    Attributes:
        name, shape, dtype: of the numbers as they are stored.
        offset: place of the first number: in the file, or in what the variable unpacks to (bytes).
        start, packed_bytes: place and length of the compressed variable in the file; the length is None if it
            is not compressed.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    offset: int
    start: int = 0
    packed_bytes: int | None = None


def numbers_of_matlab(stream: BinaryIO) -> Iterator[Variable]:
    """Yield the variables of a file that are numbers.

    Raises:
        ValueError: it is no file of MATLAB of level 5. struct.error: it ends early.
    """
    head = stream.read(_HEADER_BYTES)
    if head.startswith(_HDF5):
        raise ValueError("files of MATLAB 7.3 (HDF5) are not read: save it with -v7")
    if (mark := head[_ENDIAN_AT:]) not in (b"IM", b"MI"):
        raise ValueError("it is no file of MATLAB of level 5")
    order, at = "<" if mark == b"IM" else ">", _HEADER_BYTES
    while len(tag := stream.read(8)) == 8:
        kind, length = struct.unpack(f"{order}II", tag)
        if kind == _COMPRESSED:
            start = Inflated(part_of(stream, at + 8, length), "zlib").read(_START_BYTES)
            if (found := _variable(start, order)) is not None:
                name, shape, dtype, offset = found
                yield Variable(name, shape, dtype, offset, at + 8, length)
        elif kind == _MATRIX:
            start = tag + stream.read(_START_BYTES)
            if (found := _variable(start, order)) is not None:
                name, shape, dtype, offset = found
                yield Variable(name, shape, dtype, at + offset)
        at += 8 + length + (-length % 8 if kind != _COMPRESSED else 0)
        stream.seek(at)


def _variable(start: bytes, order: str) -> tuple[str, tuple[int, ...], np.dtype[np.generic], int] | None:
    """Return name, shape, type and place of the numbers of a variable; None if it holds others."""
    kind, flags = (struct.unpack_from(f"{order}I", start, at)[0] for at in (0, 16))
    if kind != _MATRIX or not _FIRST_OF_NUMBERS <= flags & 0xFF <= _LAST_OF_NUMBERS or flags & _IS_COMPLEX:
        return None
    at = 24  # behind the tags of the variable and of its flags
    parts = []
    for _ in ("shape", "name"):
        code, length, first, at = _part(start, at, order)
        parts.append((code, start[first : first + length]))
    code, _, offset, _ = _part(start, at, order)
    if code not in _TYPES:
        raise ValueError(f"it has values of the unknown type {code}")
    shape = np.frombuffer(parts[0][1], np.dtype(f"{order}i4")).tolist()
    if min(shape, default=0) < 0:
        raise ValueError(f"it gives the shape {shape}")
    return parts[1][1].decode("latin-1"), tuple(shape), np.dtype(f"{order}{_TYPES[code]}"), offset


def _part(start: bytes, at: int, order: str) -> tuple[int, int, int, int]:
    """Return type, length and place of the content of an element, and the place of the next one."""
    code, length = struct.unpack_from(f"{order}II", start, at)
    if code >> 16:  # a short one, with its content in place of the length
        return code & 0xFFFF, code >> 16, at + 4, at + 8
    return code, length, at + 8, at + 8 + length + -length % 8


def part_of(stream: BinaryIO, start: int, length: int) -> BinaryIO:
    """Return a part of a stream, which is read from its own start on."""
    return cast(BinaryIO, io.BufferedReader(_Part(stream, start, length)))


class _Part(io.RawIOBase):
    def __init__(self, stream: BinaryIO, start: int, length: int) -> None:
        super().__init__()
        self._stream, self._at, self._end = stream, start, start + length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        self._stream.seek(self._at)
        data = self._stream.read(min(len(buffer), self._end - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
