"""NumPy arrays as images: ``.npy`` files, and ``.npz`` files of one array. Nothing is unpickled.

An array is [height, width] or [height, width, channels] of truths, whole or floating-point numbers. White is
the largest unsigned number; floats from 0 to 1 are shades; of other numbers the file does not say which are
black and white.
"""

from __future__ import annotations

import io
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.formats import NPY, ImageRejected, check_pixels
from shardmill.infra.codecs.samples import check_bytes

# By version of the format: returns shape, whether in Fortran order, and type.
HEADER_READERS: Final[Mapping[tuple[int, int], Callable[[BinaryIO], tuple[Any, ...]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

# What NumPy and zipfile raise for files that are damaged, also on purpose.
ARRAY_DAMAGES: Final = (
    EOFError, ValueError, OverflowError, TypeError, IndexError, KeyError, RuntimeError, SyntaxError, OSError,
    struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


def read_numpy(data: bytes, max_pixels: int) -> npt.NDArray[Any]:
    """Return the array of a file as [H, W, C] of numbers, in the byte order of this machine.

    Raises:
        ImageRejected: it is damaged, too large, of another shape or of other values.
    """
    try:
        if data.startswith(NPY):
            return _read(io.BytesIO(data), len(data), max_pixels)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) != 1:
                names = ", ".join(sorted(member.filename.removesuffix(".npy") for member in members)[:8])
                raise ImageRejected(
                    "unsupported",
                    f"a NumPy file of {len(members)} arrays ({names}); keep the image alone, or say "
                    "--source-kind arrays if each row of them is an image",
                )
            with archive.open(members[0]) as member:
                return _read(cast(BinaryIO, member), members[0].file_size, max_pixels)
    except ARRAY_DAMAGES as error:
        words = str(error) or type(error).__name__
        raise ImageRejected("corrupt", f"not a sound NumPy file: {words}") from error


def _read(stream: BinaryIO, size_bytes: int, max_pixels: int) -> npt.NDArray[Any]:
    version = np.lib.format.read_magic(stream)
    if version not in HEADER_READERS:
        raise ImageRejected("unsupported", f"version {version[0]}.{version[1]} of NumPy's format")
    shape, in_columns, dtype = HEADER_READERS[version](stream)
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        what = "Python objects, which are never unpickled" if dtype.hasobject else f"values of type {dtype}"
        raise ImageRejected("unsupported", f"a NumPy array of {what}")
    height, width, channels = _shape(shape)
    check_pixels(height, width, max_pixels)
    num_bytes = height * width * channels * dtype.itemsize
    check_bytes(num_bytes, max_pixels, "values")
    if num_bytes > size_bytes:
        raise ImageRejected(
            "truncated", f"the NumPy file ends early: it lacks {num_bytes - size_bytes:,} bytes"
        )
    values = stream.read(num_bytes)
    if len(values) < num_bytes:
        raise ImageRejected("truncated", "the NumPy file ends early")
    array = np.frombuffer(values, dtype).reshape(shape, order="F" if in_columns else "C")
    native = np.ascontiguousarray(array, dtype.newbyteorder("="))
    return native.reshape(height, width, channels)


def _shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return height, width and channels.

    Raises:
        ImageRejected: the array has another shape, or its channels may come first.
    """
    words = f"a NumPy array of the shape {list(shape)}"
    if len(shape) not in (2, 3) or 0 in shape or any(size < 0 for size in shape):
        rows = "; for rows of images say --source-kind arrays" if len(shape) == 4 else ""
        raise ImageRejected("unsupported", f"{words}: store [height, width, channels]{rows}")
    height, width, channels = (*shape, 1)[:3]
    if len(shape) == 3 and height < channels:
        raise ImageRejected(
            "unsupported", f"{words}: its channels seem to come first; store numpy.moveaxis(image, 0, 2)"
        )
    return height, width, channels


def shades_of(values: npt.NDArray[Any]) -> tuple[float, float] | None:
    """Return the numbers of black and white; None if nothing says which they are."""
    if values.dtype.kind == "b":
        return 0.0, 1.0
    if values.dtype.kind == "u":
        return 0.0, float(np.iinfo(values.dtype).max)
    if values.dtype.kind == "f" and values.size and 0 <= values.min() <= values.max() <= 1:
        return 0.0, 1.0
    return None


def name_of(values: npt.NDArray[Any]) -> str:
    """Return the words for its kind of pixels: "grey 16-bit", "5 channels float"."""
    bits = 8 * values.dtype.itemsize
    name = {1: "grey", 3: "RGB"}.get(values.shape[2], f"{values.shape[2]} channels")
    if values.dtype.kind == "f":
        return f"{name} float"
    return name if bits == 8 else f"{name} {bits}-bit"
