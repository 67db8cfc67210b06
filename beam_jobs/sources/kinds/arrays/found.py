"""Arrays in files: NumPy's ``.npy`` and ``.npz``, and IDX as MNIST is published, plain or compressed by gzip.

Only headers are read here; the values stay where they are.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, cast

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.sources.kinds.arrays.matlab import numbers_of_matlab, part_of
from shardmill.beam_jobs.sources.rows.row_files import RowFile, RowFileBroken
from shardmill.beam_jobs.sources.rows.unpacked import Inflated, PackedDataBroken
from shardmill.infra.codecs.formats import NPY
from shardmill.infra.codecs.numpy_files import ARRAY_DAMAGES, HEADER_READERS

ENDINGS = (".npy", ".npz", ".idx", "-ubyte", ".idx.gz", "-ubyte.gz")

MATLAB = ".mat"

# IDX is described on the page of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, the type, the
# number of dimensions, and the length of each (big-endian, as the values).
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_MAX_DIMENSIONS = 8
_HEAD_BYTES = 1 << 16  # longer than any header
_DEFLATE_RATIO = 1032  # nothing is compressed better: RFC 1951 gives 258 bytes two bits at least

Packing = Literal["none", "gzip", "member"]


@dataclass(frozen=True)
class FoundArray:
    """An array in a file.

    Attributes:
        file: the file.
        name: of the member of an ``.npz`` without ``.npy``; of other files the file's own, without ending.
        shape: shape of the array.
        dtype: type of its values.
        offset: place of the first value (bytes), in the file or in what it unpacks to.
        packing: none: the values lie in the file; gzip: the whole file is compressed; member: they are in a
            compressed member of an ``.npz``.
        is_fortran: the values lie in Fortran order.
        member: full name of the member of an ``.npz``; else None.
        most_bytes: length that the values have at most, by that of the file (bytes).
        is_by_columns: the pixels of an image come channel by channel, and column by column in each.
        begins: place of the compressed variable of a file of MATLAB, and its length (bytes); None: of others.
    """

    file: RowFile
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    offset: int
    packing: Packing = "none"
    is_fortran: bool = False
    member: str | None = None
    most_bytes: int = 0
    is_by_columns: bool = False
    begins: tuple[int, int] | None = None

    @property
    def row_bytes(self) -> int:
        """Length of one row (bytes)."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def in_words(self) -> str:
        """Name, shape and type, for people."""
        by_columns = ", column by column" if self.is_by_columns else ""
        return f"{self.name} {list(self.shape)} {self.dtype}{by_columns}"


def find_arrays(file: RowFile) -> list[FoundArray]:
    """Find the arrays in a file by its content, sorted by name.

    Raises:
        RowFileBroken: it is of no known format, or its header is damaged.
    """
    with file.open() as stream:
        head = stream.read_at(8, 0)
        try:
            if head.startswith(_ZIP_MAGIC):
                return _in_archive(file, cast(BinaryIO, stream))
            if file.uri.endswith(MATLAB):
                return _in_matlab(file, cast(BinaryIO, io.BufferedReader(stream)))
            if head.startswith(_GZIP_MAGIC):
                start = Inflated(cast(BinaryIO, stream), "gzip").read(_HEAD_BYTES)
                return [_plain(file, io.BytesIO(start), "gzip", _DEFLATE_RATIO * stream.size_bytes)]
            size_bytes = stream.size_bytes
            return [_plain(file, cast(BinaryIO, io.BufferedReader(stream)), "none", size_bytes)]
        except (PackedDataBroken, *ARRAY_DAMAGES) as error:
            raise RowFileBroken(f"it cannot be read as an array: {_in_words(error)}") from error


def _name_of_file(uri: str) -> str:
    """Return the name of a file without its ending."""
    name = uri.rpartition("/")[2].removesuffix(".gz")
    stem, _, ending = name.rpartition(".")
    return stem if stem and ending.lower() in ("npy", "npz", "idx") else name


def _in_archive(file: RowFile, stream: BinaryIO) -> list[FoundArray]:
    arrays = []
    with zipfile.ZipFile(stream) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            if not info.filename.endswith(".npy"):
                continue
            with archive.open(info) as member:
                shape, is_fortran, dtype, length = _npy_header(cast(BinaryIO, member))
            is_stored = info.compress_type == zipfile.ZIP_STORED
            if not is_stored and info.compress_type != zipfile.ZIP_DEFLATED:
                raise ValueError(f"{info.filename} is compressed in a way that NumPy does not write")
            most_bytes = info.compress_size * (1 if is_stored else _DEFLATE_RATIO)
            # The header in front of a member may be longer than its twin in the directory.
            stream.seek(info.header_offset + 26)
            name_bytes, extra_bytes = struct.unpack("<HH", stream.read(4))
            begin = info.header_offset + 30 + name_bytes + extra_bytes if is_stored else 0
            name = info.filename.removesuffix(".npy")
            packing: Packing = "none" if is_stored else "member"
            arrays.append(
                FoundArray(
                    file, name, shape, dtype, begin + length, packing, is_fortran, info.filename, most_bytes
                )
            )
    return arrays


def _plain(file: RowFile, stream: BinaryIO, packing: Packing, most_bytes: int) -> FoundArray:
    head = stream.read(len(NPY))
    stream.seek(0)
    name = _name_of_file(file.uri)
    if head == NPY:
        shape, is_fortran, dtype, offset = _npy_header(stream)
        return FoundArray(
            file, name, shape, dtype, offset, packing, is_fortran, most_bytes=most_bytes - offset
        )
    zeros, code, dimensions = struct.unpack(">HBB", stream.read(4))
    if zeros or code not in _IDX_TYPES or not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise ValueError("neither NumPy nor IDX")
    shape, offset = struct.unpack(f">{dimensions}I", stream.read(4 * dimensions)), 4 + 4 * dimensions
    dtype = np.dtype(_IDX_TYPES[code])
    is_emnist = name.lower().startswith("emnist-") and dimensions == 3  # these alone are transposed
    most_bytes -= offset
    return FoundArray(
        file, name, shape, dtype, offset, packing, most_bytes=most_bytes, is_by_columns=is_emnist
    )


def _npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    """Return shape, whether in Fortran order, type, and length of the header of an ``.npy`` file."""
    version = np.lib.format.read_magic(stream)
    if version not in HEADER_READERS:
        raise ValueError(f"version {version} of NumPy's format is not known")
    shape, is_fortran, dtype = HEADER_READERS[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not loaded")
    if min(shape, default=0) < 0 or not dtype.itemsize:
        raise ValueError(f"its header gives the shape {list(shape)} and the type {dtype}")
    return shape, is_fortran, dtype, stream.tell()


def _in_matlab(file: RowFile, stream: BinaryIO) -> list[FoundArray]:
    """Find the numbers in a file of MATLAB. Of images [H, W, C, N] of bytes each lies in one piece."""
    found = []
    for variable in numbers_of_matlab(stream):
        shape, is_images = variable.shape, len(variable.shape) == 4 and variable.dtype == np.uint8
        length, begins = math.prod(shape) * variable.dtype.itemsize, None
        if variable.packed_bytes is not None:
            begins, length = (variable.start, variable.packed_bytes), _DEFLATE_RATIO * variable.packed_bytes
        found.append(
            FoundArray(
                file, variable.name, (shape[3], *shape[:3]) if is_images else shape, variable.dtype,
                variable.offset, "none" if begins is None else "member", not is_images, variable.name, length,
                is_images, begins,
            )
        )  # fmt: skip
    return sorted(found, key=lambda array: array.name)


@contextmanager
def unpacked(array: FoundArray) -> Iterator[BinaryIO]:
    """Open what the file of an array unpacks to, from its start: the file itself where nothing is compressed.

    Raises:
        PackedDataBroken: where it is read, and the compressed data is damaged there.
    """
    with array.file.open() as container:
        stream = cast(BinaryIO, container)
        try:
            if array.packing == "gzip":
                yield cast(BinaryIO, Inflated(stream, "gzip"))
            elif array.begins is not None:
                yield cast(BinaryIO, Inflated(part_of(stream, *array.begins), "zlib"))
            elif array.member is not None:
                with zipfile.ZipFile(stream) as archive, archive.open(array.member) as member:
                    yield cast(BinaryIO, _Member(member))
            else:
                yield stream
        except ARRAY_DAMAGES as error:
            raise PackedDataBroken(_in_words(error)) from error


class _Member:
    """A member of an ``.npz`` whose damages are one error."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, length: int = -1) -> bytes:
        try:
            return cast(bytes, self._stream.read(length))
        except ARRAY_DAMAGES as error:
            raise PackedDataBroken(_in_words(error)) from error


def read_values(array: FoundArray) -> npt.NDArray[np.generic]:
    """Read a whole array: labels, not images.

    Raises:
        RowFileBroken: the file is damaged or ends early.
    """
    length = math.prod(array.shape) * array.dtype.itemsize
    if length > array.most_bytes:
        raise RowFileBroken(f"the array {array.name!r} ends before its {length:,} bytes")
    try:
        if array.packing == "none":
            with array.file.open() as container:
                data = container.read_at(length, array.offset)
        else:
            with unpacked(array) as stream:
                data = stream.read(array.offset + length)[array.offset :]
    except PackedDataBroken as error:
        raise RowFileBroken(f"the array {array.name!r} is damaged: {error}") from error
    if len(data) < length:
        raise RowFileBroken(f"the array {array.name!r} ends after {len(data):,} of {length:,} bytes")
    values = np.frombuffer(data, array.dtype)
    return values.reshape(array.shape, order="F" if array.is_fortran else "C")


def _in_words(error: Exception) -> str:
    return str(error) or type(error).__name__
