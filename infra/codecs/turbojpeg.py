"""JPEG to planes and back: a thin binding of the system's libturbojpeg (TurboJPEG's API 2, in 2.1 and 3.x).

The binding is our own because one call for each step is all that is needed: PyTurboJPEG copies the planes and
the file on the way, and its current release refuses the library that Debian 12 has. Calls release the GIL. A
handle is no one's but its thread's.

Where the library is not installed (Debian: ``libturbojpeg0``, Ubuntu: ``libturbojpeg``), JPEGs go through RGB
pixels (infra.codecs.jpeg), which takes 1.8 times as long (400×533 pixels to 256).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np

from infra.codecs.formats import Pixels

# Path of the library in place of the system's; "none" does without.
LIBRARY_VARIABLE = "SHARDMILL_LIBTURBOJPEG"

_NAMES = ("libturbojpeg.so.0", "libturbojpeg.0.dylib")
_VERSION = re.compile(rb"libjpeg-turbo version (\d+\.\d+[\w. ]*(?:\(build \d+\))?)")

# turbojpeg.h: numbers of the sampling modes -> (horizontal, vertical) size of a chroma sample in pixels.
_SAMPLINGS = {0: (1, 1), 1: (2, 1), 2: (2, 2), 3: (1, 1), 4: (1, 2), 5: (4, 1)}
_SAMP_420, _SAMP_GRAY = 2, 3
_NAMES_OF_SAMPLINGS = {0: "4:4:4", 1: "4:2:2", 2: "4:2:0", 4: "4:4:0", 5: "4:1:1"}
_YCBCR, _GRAY = 1, 2
_NOREALLOC, _ACCURATE_DCT, _STOP_ON_WARNING, _LIMIT_SCANS = 1024, 4096, 8192, 32768

# Larger images get memory of their own, which they give back; up to here a thread keeps what it has.
_KEPT_BYTES = 24 << 20

_Pointers = ctypes.c_void_p * 3
_Strides = ctypes.c_int * 3


@dataclass(frozen=True, slots=True)
class Planes:
    """A picture in the full-range YCbCr of JFIF (ITU-R BT.601), or grey.

    Attributes:
        y: uint8 [H, W].
        cb, cr: uint8 [ceil(H / vertical), ceil(W / horizontal)], None for grey.
        horizontal, vertical: size of a chroma sample (pixels).
    """

    y: Pixels
    cb: Pixels | None = None
    cr: Pixels | None = None
    horizontal: int = 1
    vertical: int = 1


@dataclass(frozen=True, slots=True)
class PlanarHeader:
    """What the library reads in a header.

    Attributes:
        height, width: pixels.
        sampling: TurboJPEG's number of it.
    """

    height: int
    width: int
    sampling: int

    @property
    def color(self) -> str:
        """``grey``, or such as ``YCbCr 4:2:0``."""
        name = _NAMES_OF_SAMPLINGS.get(self.sampling)
        return f"YCbCr {name}" if name else "grey"


@functools.cache
def library() -> Any:
    """The loaded library, or None where there is none that serves."""
    chosen = os.environ.get(LIBRARY_VARIABLE, "")
    if chosen == "none":
        return None
    for name in (chosen,) if chosen else (*_NAMES, ctypes.util.find_library("turbojpeg") or ""):
        try:
            loaded = ctypes.CDLL(name) if name else None
        except OSError:
            continue
        if loaded is not None and hasattr(loaded, "tjDecompressToYUVPlanes"):
            _declare(loaded)
            return loaded
    return None


def _declare(loaded: Any) -> None:
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_ulong
    for name, result, arguments in (
        ("tjInitDecompress", pointer, ()),
        ("tjInitCompress", pointer, ()),
        ("tjDestroy", number, (pointer,)),
        ("tjDecompressHeader3", number, (pointer, ctypes.c_char_p, size, pointer, pointer, pointer, pointer)),
        (
            "tjDecompressToYUVPlanes",
            number,
            (pointer, ctypes.c_char_p, size, pointer, number, pointer, number, number),
        ),
        (
            "tjCompressFromYUVPlanes",
            number,
            (pointer, pointer, number, pointer, number, number, pointer, pointer, number, number),
        ),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments


@functools.cache
def build() -> str:
    """Version of the library in use, such as ``2.1.5 (build 20230203)``; "none" where there is none."""
    loaded = library()
    if loaded is None:
        return "none"
    content = _library_path(loaded).read_bytes()
    found = _VERSION.search(content)
    return found[1].decode().strip() if found else f"sha256 {hashlib.sha256(content).hexdigest()[:16]}"


class _SymbolInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_path(loaded: Any) -> Path:
    """The file that was loaded: the loader finds it on paths of its own."""
    info = _SymbolInfo()
    address = ctypes.cast(loaded.tjInitDecompress, ctypes.c_void_p)
    if not ctypes.CDLL(None).dladdr(address, ctypes.byref(info)):
        raise OSError("the loader does not know where libturbojpeg lies")
    return Path(os.fsdecode(info.file))


class _Thread:
    """What a thread keeps between images: handles, and memory that need not be mapped and zeroed again."""

    def __init__(self) -> None:
        self._library = library()
        self.decompressor = self._library.tjInitDecompress()
        self.compressor = self._library.tjInitCompress()
        self.planes: Pixels = np.empty(1 << 20, np.uint8)
        self.file: Pixels = np.empty(1 << 18, np.uint8)
        self.pointers, self.strides = _Pointers(), _Strides()
        self.header = (ctypes.c_int * 4)()
        at = ctypes.addressof(self.header)
        self.header_at = (at, at + 4, at + 8, at + 12)
        self.file_pointer, self.file_size = ctypes.c_void_p(), ctypes.c_ulong()

    def forget_failure(self) -> None:
        """Take a new handle: after an error TurboJPEG 2.1 goes on in the middle of the file that had it."""
        self._library.tjDestroy(self.decompressor)
        self.decompressor = self._library.tjInitDecompress()

    def __del__(self) -> None:
        self._library.tjDestroy(self.decompressor)
        self._library.tjDestroy(self.compressor)


_local = threading.local()


def _thread() -> _Thread:
    mine: _Thread | None = getattr(_local, "mine", None)
    if mine is None:
        mine = _local.mine = _Thread()
    return mine


def read_planar_header(data: bytes) -> PlanarHeader | None:
    """Size and sampling of a JPEG whose planes can be decoded; None for others, and for what is no JPEG."""
    mine = _thread()
    if library().tjDecompressHeader3(mine.decompressor, data, len(data), *mine.header_at):
        mine.forget_failure()
        return None
    width, height, sampling, space = mine.header
    if space not in (_YCBCR, _GRAY) or sampling not in _SAMPLINGS:
        return None
    return PlanarHeader(height, width, sampling)


def decode_planes(data: bytes, header: PlanarHeader) -> Planes | None:
    """The planes of a JPEG; None where anything is amiss, if only a warning: a truncated file is no more.

    The planes lie in memory of the thread: they are valid until its next call of this function.

    Args:
        data: the file.
        header: as ``read_planar_header`` read it in the same bytes: the library trusts the sizes.
    """
    mine = _thread()
    height, width = header.height, header.width
    horizontal, vertical = _SAMPLINGS[header.sampling]
    chroma_height, chroma_width = -(-height // vertical), -(-width // horizontal)
    # The library writes whole chroma samples, so the luma plane is as large as those are.
    rows, stride = chroma_height * vertical, chroma_width * horizontal
    luma, chroma = rows * stride, chroma_height * chroma_width
    coloured = header.sampling != _SAMP_GRAY
    memory = mine.planes = _room(mine.planes, luma + 2 * chroma)
    if memory.size < luma + 2 * chroma:
        memory = np.empty(luma + 2 * chroma, np.uint8)
    start = memory.ctypes.data
    mine.pointers[:] = [start, start + luma, start + luma + chroma]
    mine.strides[:] = [stride, chroma_width, chroma_width]
    flags = _ACCURATE_DCT | _STOP_ON_WARNING | _LIMIT_SCANS
    if library().tjDecompressToYUVPlanes(
        mine.decompressor, data, len(data), mine.pointers, 0, mine.strides, 0, flags
    ):
        mine.forget_failure()
        return None
    y = memory[:luma].reshape(rows, stride)[:height, :width]
    if not coloured:
        return Planes(y)
    cb, cr = memory[luma : luma + 2 * chroma].reshape(2, chroma_height, chroma_width)
    return Planes(y, cb, cr, horizontal, vertical)


def _room(memory: Pixels, size: int) -> Pixels:
    """Memory that a thread keeps: grown to what is needed, if that is not too much to keep."""
    if memory.size >= size or size > _KEPT_BYTES:
        return memory
    return np.empty(size + size // 2, np.uint8)


def _even(plane: Pixels) -> Pixels:
    """The plane with even sides, its last column and row repeated where they are odd."""
    height, width = plane.shape
    if height % 2 == 0 and width % 2 == 0:
        return plane
    return cast(Pixels, cv2.copyMakeBorder(plane, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE))


def encode_planes(planes: Planes, quality: int) -> bytes:
    """Baseline JPEG of grey planes, or of planes with chroma samples of 2×2 pixels (4:2:0).

    Raises:
        RuntimeError: the library could not; memory, most likely.
    """
    mine = _thread()
    height, width = planes.y.shape
    grey = planes.cb is None or planes.cr is None
    # The library reads whole chroma samples: with an odd side, a column or a row of luma beyond the picture.
    y = planes.y if grey else _even(planes.y)
    arrays = (y,) if grey else (y, planes.cb, planes.cr)
    for number, array in enumerate(arrays):
        if array is None or array.strides[1] != 1:
            raise ValueError("the rows of a plane are not contiguous")
        mine.pointers[number] = array.ctypes.data
        mine.strides[number] = array.strides[0]
    # tjBufSize of 4:2:0: so much may the worst picture need.
    most = (-(-height // 16) * 16) * (-(-width // 16) * 16) * 3 + 2048
    memory = mine.file = _room(mine.file, most)
    if memory.size < most:
        memory = np.empty(most, np.uint8)
    mine.file_pointer.value, mine.file_size.value = memory.ctypes.data, memory.size
    if library().tjCompressFromYUVPlanes(
        mine.compressor,
        mine.pointers,
        width,
        mine.strides,
        height,
        _SAMP_GRAY if grey else _SAMP_420,
        ctypes.byref(mine.file_pointer),
        ctypes.byref(mine.file_size),
        quality,
        _NOREALLOC | _ACCURATE_DCT,
    ):
        raise RuntimeError("libturbojpeg could not encode the picture")
    return memory[: mine.file_size.value].tobytes()
