"""Labels in files of MATLAB (level 5): numbers, texts, cells and structures, as plain values.

The format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf. Objects and functions are not
read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

_HEADER_BYTES, _ENDIAN_AT = 128, 126
_MOST_BYTES = 1 << 28  # that a variable unpacks to
_COMPRESSED, _MATRIX = 15, 14
_CELL, _STRUCT, _CHAR, _DOUBLE, _LAST = 1, 2, 4, 6, 15
_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8", 16: "u1",
    17: "u2", 18: "u4",
}  # fmt: skip
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}


def read_matlab(data: bytes) -> dict[str, Any]:
    """Return the variables of a file: arrays of numbers, texts, lists of cells, and lists of structures.

    A structure is a dictionary. Numbers and texts that stand alone are Python's.

    Raises:
        ValueError: it is no such file, is damaged, or holds objects.
    """
    mark = data[_ENDIAN_AT:_HEADER_BYTES]
    if mark not in (b"IM", b"MI"):
        raise ValueError("it is no file of MATLAB of level 5")
    order = "<" if mark == b"IM" else ">"
    try:
        found = (_variable(part, order) for part in _unpacked(data[_HEADER_BYTES:], order))
        return {name: value for name, value in found if name}
    except (struct.error, zlib.error, IndexError, RuntimeError) as error:
        raise ValueError(f"it is damaged: {error}") from error


def rows_of_matlab(data: bytes) -> list[list[str]]:
    """Return the lines that a file of labels stands for.

    Of structures these are the names of their fields, and a line for each. Of a list of numbers it is a
    number a line. Of several lists that divide the numbers of images, it is a line for each image with the
    name of its list.

    Raises:
        ValueError: it is no such file.
    """
    variables = read_matlab(data)
    for value in variables.values():
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            return [list(value[0]), *([_in_text(one) for one in entry.values()] for entry in value)]
    arrays = {
        name: np.asarray(value)
        for name, value in variables.items()
        if isinstance(value, np.ndarray | int | float)
    }
    vectors = {
        name: array.ravel() for name, array in arrays.items() if array.size == max(array.shape, default=1)
    }
    if len(vectors) == len(arrays) == 1:
        return [[_in_text(one)] for one in next(iter(vectors.values())).tolist()]
    numbers = np.sort(np.concatenate([*vectors.values(), np.zeros(0)]))
    divide = len(numbers) > 0 and (numbers == np.arange(1, len(numbers) + 1)).all()
    if len(vectors) < len(arrays) or not divide:
        raise ValueError("it holds neither structures, nor a list of numbers, nor a division of images")
    of_image = {int(number): name for name, vector in vectors.items() for number in vector}
    return [[of_image[number]] for number in range(1, len(numbers) + 1)]


def names_of_matlab(data: bytes) -> tuple[str, dict[str, str]]:
    """Return lines of classes, and number -> code of each synset, of a file of classes.

    Raises:
        ValueError: it is no such file.
    """
    for value in read_matlab(data).values():
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            return "\n".join(value), {}
        if (
            isinstance(value, list)
            and value
            and all(isinstance(one, dict) and "WNID" in one for one in value)
        ):
            codes = {_in_text(one.get("ILSVRC2012_ID")): str(one["WNID"]) for one in value}
            return "\n".join(f"{one['WNID']} {one.get('words', '')}" for one in value), codes
    raise ValueError("it names no classes")


def _in_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of each element."""
    at = 0
    while at + 8 <= len(data):
        kind, length = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # a short one, with its content in place of the length
            yield kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)]
            at += 8
            continue
        content = data[at + 8 : at + 8 + length]
        if len(content) < length:
            raise ValueError("it ends early")
        yield kind, content
        at += 8 + length + (-length % 8 if kind != _COMPRESSED else 0)


def _unpacked(data: bytes, order: str) -> Iterator[bytes]:
    """Yield the content of each matrix on top."""
    for kind, content in _elements(data, order):
        if kind == _COMPRESSED:
            packed = zlib.decompressobj()
            content = packed.decompress(content, _MOST_BYTES)
            if packed.unconsumed_tail:
                raise ValueError(f"a variable unpacks to more than {_MOST_BYTES:,} bytes")
            kind, content = next(_elements(content, order))
        if kind == _MATRIX:
            yield content


def _variable(data: bytes, order: str) -> tuple[str, Any]:
    """Return name and value of a matrix."""
    parts = _elements(data, order)
    if (flags := next(parts, None)) is None:
        return "", []
    kind = struct.unpack_from(f"{order}I", flags[1])[0] & 0xFF
    shape = tuple(_numbers(*next(parts), order).tolist())
    name = next(parts)[1].decode("latin-1")
    count = int(np.prod(shape, dtype=np.int64))
    if kind == _CELL:
        return name, [_variable(next(parts)[1], order)[1] for _ in range(count)]
    if kind == _STRUCT:
        length = int(_numbers(*next(parts), order)[0])
        names = next(parts)[1]
        fields = [
            names[at : at + length].split(b"\0")[0].decode("latin-1") for at in range(0, len(names), length)
        ]
        return name, [{field: _variable(next(parts)[1], order)[1] for field in fields} for _ in range(count)]
    if kind == _CHAR:
        code, content = next(parts, (1, b""))
        return name, _text(code, content, order)
    if not _DOUBLE <= kind <= _LAST:
        raise ValueError("it holds objects or functions, which are not read")
    values = _numbers(*next(parts, (9, b"")), order)
    if values.size != count:
        raise ValueError("it ends early")
    return name, values.reshape(shape, order="F") if count != 1 else values[0].item()


def _numbers(code: int, content: bytes, order: str) -> np.ndarray:
    if code not in _TYPES:
        raise ValueError(f"it has values of the unknown type {code}")
    return np.frombuffer(content, np.dtype(f"{order}{_TYPES[code]}"))


def _text(code: int, content: bytes, order: str) -> str:
    encoding = _TEXTS.get(code, "latin-1")
    ending = "" if encoding in ("latin-1", "utf-8") else "-le" if order == "<" else "-be"
    return content.decode(encoding + ending)
