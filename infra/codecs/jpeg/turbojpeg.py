"""Decode JPEG to planes or pixels, and encode planes, each with a call of the system's libturbojpeg.

The binding (TurboJPEG's API 2, in 2.1 and 3.x) is our own because one call for each step is enough.
PyTurboJPEG copies planes and files, and its current release refuses the library of Debian 12. Calls release
the GIL. Each thread has its own handles.

If the library is not installed (Debian: ``libturbojpeg0``, Ubuntu: ``libturbojpeg``), JPEGs go through RGB
pixels (shardmill.infra.codecs.jpeg.decode), which takes 1.8 times as long (400×533 pixels to 256).
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

from shardmill.infra.codecs.formats import Pixels

# Environment variable: path of a library to use in place of the system's; "none" uses no library.
LIBRARY_VARIABLE = "SHARDMILL_LIBTURBOJPEG"

_NAMES = ("libturbojpeg.so.0", "libturbojpeg.0.dylib")
_VERSION = re.compile(rb"libjpeg-turbo version (\d+\.\d+[\w. ]*(?:\(build \d+\))?)")


@functools.cache
def library() -> Any:
    """Return the loaded library, or None if no suitable one is found."""
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
            "tjDecompress2",
            number,
            (pointer, ctypes.c_char_p, size, pointer, number, number, number, number, number),
        ),
        ("tjGetErrorCode", number, (pointer,)),
        ("tjGetErrorStr2", ctypes.c_char_p, (pointer,)),
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
    """Return the version of the library, such as ``2.1.5 (build 20230203)``, or "none"."""
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
    """Return the file that was loaded; the loader finds it on paths of its own."""
    info = _SymbolInfo()
    address = ctypes.cast(loaded.tjInitDecompress, ctypes.c_void_p)
    if not ctypes.CDLL(None).dladdr(address, ctypes.byref(info)):
        raise OSError("the dynamic loader cannot find libturbojpeg")
    return Path(os.fsdecode(info.file))


class _Handles:
    """The library's handles of one thread. Making them takes 60 µs, so a thread keeps them between images."""

    def __init__(self) -> None:
        self._library = library()
        self.decompressor = self._library.tjInitDecompress()
        self.compressor = self._library.tjInitCompress()

    def forget_failure(self) -> None:
        """Take a new handle: after an error TurboJPEG 2.1 would continue in the middle of the failed file."""
        self._library.tjDestroy(self.decompressor)
        self.decompressor = self._library.tjInitDecompress()

    def __del__(self) -> None:
        self._library.tjDestroy(self.decompressor)
        self._library.tjDestroy(self.compressor)


_local = threading.local()


def _this_thread() -> _Handles:
    """Return the calling thread's handles. Needs the library."""
    mine: _Handles | None = getattr(_local, "mine", None)
    if mine is None:
        mine = _local.mine = _Handles()
    return mine


# turbojpeg.h: number of the sampling -> vertical and horizontal size of a chroma sample (pixels).
_SAMPLINGS = {0: (1, 1), 1: (1, 2), 2: (2, 2), 3: (1, 1), 4: (2, 1), 5: (1, 4)}
_SAMP_420, _SAMP_GRAY = 2, 3
_YCBCR, _GRAY = 1, 2
_NOREALLOC, _ACCURATE_DCT, _STOP_ON_WARNING, _LIMIT_SCANS = 1024, 4096, 8192, 32768
_DECODE_FLAGS = _ACCURATE_DCT | _STOP_ON_WARNING | _LIMIT_SCANS
_ENCODE_FLAGS = _NOREALLOC | _ACCURATE_DCT
_WARNING = 0  # TJERR_WARNING: the picture was decoded nevertheless

# turbojpeg.h: number of the pixel format, and its channels.
_PIXEL_FORMATS = {"RGB": (0, 3), "GRAY": (6, 1), "CMYK": (11, 4)}

_Pointers = ctypes.c_void_p * 3
_Strides = ctypes.c_int * 3


@dataclass(frozen=True, slots=True)
class Planes:
    """A picture in the full-range YCbCr of JFIF (ITU-R BT.601), or grey.

    Attributes:
        y: uint8 [H, W].
        cb, cr: uint8 [ceil(H / vertical), ceil(W / horizontal)], None for grey.
        horizontal: width of a chroma sample (samples of y).
        vertical: height of a chroma sample (samples of y).
        scale: width and height of a sample of y (pixels): 1, or 2, 4 or 8 if the planes were decoded scaled.
            Those reach beyond the picture to whole chroma samples.
        picture: y, x, height, width of the picture if the planes were decoded scaled (pixels).
    """

    y: Pixels
    cb: Pixels | None = None
    cr: Pixels | None = None
    horizontal: int = 1
    vertical: int = 1
    scale: int = 1
    picture: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class PlanarHeader:
    """The header of a JPEG as the library reads it.

    Attributes:
        height: pixels.
        width: pixels.
        sampling: TurboJPEG's number of the sampling.
    """

    height: int
    width: int
    sampling: int

    @property
    def is_grey(self) -> bool:
        """Tell whether there is no chroma."""
        return self.sampling == _SAMP_GRAY

    @property
    def sample(self) -> tuple[int, int]:
        """Height and width of a chroma sample (pixels)."""
        return _SAMPLINGS[self.sampling]

    @property
    def decoded_chroma(self) -> tuple[int, int]:
        """Rows and columns of a decoded plane of chroma."""
        vertical, horizontal = self.sample
        return -(-self.height // vertical), -(-self.width // horizontal)

    @property
    def decoded_luma(self) -> tuple[int, int]:
        """Rows and columns of decoded luma, which the library extends to whole chroma samples."""
        (vertical, horizontal), (rows, columns) = self.sample, self.decoded_chroma
        return rows * vertical, columns * horizontal


def read_planar_header(data: bytes) -> PlanarHeader | None:
    """Read size and sampling of a JPEG. Return None if its planes cannot be decoded, or if it is no JPEG."""
    mine = _this_thread()
    header = (ctypes.c_int * 4)()  # width, height, sampling, colour space
    places = (ctypes.addressof(header) + ctypes.sizeof(ctypes.c_int) * number for number in range(4))
    if library().tjDecompressHeader3(mine.decompressor, data, len(data), *places):
        mine.forget_failure()
        return None
    width, height, sampling, space = header
    if space not in (_YCBCR, _GRAY) or sampling not in _SAMPLINGS:
        return None
    return PlanarHeader(height, width, sampling)


def decode_planes(data: bytes, header: PlanarHeader, scale: int = 1) -> Planes | None:
    """Decode the planes of a JPEG.

    Args:
        data: the file.
        header: from ``read_planar_header`` of the same bytes; the library trusts its sizes.
        scale: width and height of a decoded sample of luma (pixels): 1, 2, 4 or 8.

    Returns:
        The planes, or None after an error or a warning. A truncated file causes only a warning.
    """
    mine = _this_thread()
    whole = header
    if scale > 1:
        header = PlanarHeader(-(-whole.height // scale), -(-whole.width // scale), whole.sampling)
    (rows, stride), (chroma_rows, chroma_stride) = header.decoded_luma, header.decoded_chroma
    luma, chroma = rows * stride, chroma_rows * chroma_stride
    memory = np.empty(luma + 2 * chroma, np.uint8)
    start = memory.ctypes.data
    pointers = _Pointers(start, start + luma, start + luma + chroma)
    strides = _Strides(stride, chroma_stride, chroma_stride)
    # The library decodes at the largest scale that fits into this size; 0 is the size of the picture.
    width, height = (header.width, header.height) if scale > 1 else (0, 0)
    if library().tjDecompressToYUVPlanes(
        mine.decompressor, data, len(data), pointers, width, strides, height, _DECODE_FLAGS
    ):
        mine.forget_failure()
        return None
    y, picture = memory[:luma].reshape(rows, stride), (0, 0, whole.height, whole.width)
    if scale == 1:
        y = y[: whole.height, : whole.width]
    if header.is_grey:
        return Planes(y, scale=scale, picture=picture)
    cb, cr = memory[luma:].reshape(2, chroma_rows, chroma_stride)
    vertical, horizontal = header.sample
    return Planes(y, cb, cr, horizontal, vertical, scale, picture)


def decode_pixels(data: bytes, size: tuple[int, int], colorspace: str, strict: bool = True) -> Pixels:
    """Decode a JPEG to pixels, whatever the sampling of its components.

    Args:
        data: the file.
        size: height and width from its header (pixels).
        colorspace: "RGB", "GRAY" or "CMYK".
        strict: refuse a file that the library warns about.

    Returns:
        uint8 [H, W, C].

    Raises:
        ValueError: the library refused the file or warned about it; the message is the library's.
    """
    number, channels = _PIXEL_FORMATS[colorspace]
    height, width = size
    pixels = np.zeros((height, width, channels), np.uint8)
    mine = _this_thread()
    flags = _ACCURATE_DCT | _LIMIT_SCANS | (_STOP_ON_WARNING if strict else 0)
    if library().tjDecompress2(
        mine.decompressor, data, len(data), pixels.ctypes.data, width, width * channels, height, number, flags
    ):
        message = library().tjGetErrorStr2(mine.decompressor).decode(errors="replace")
        is_warning = library().tjGetErrorCode(mine.decompressor) == _WARNING
        mine.forget_failure()
        if strict or not is_warning:
            raise ValueError(message)
    return pixels


def _even(plane: Pixels) -> Pixels:
    """Repeat the last column and row of a plane whose sides are odd."""
    height, width = plane.shape
    if height % 2 == 0 and width % 2 == 0:
        return plane
    return cast(Pixels, cv2.copyMakeBorder(plane, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE))


def encode_planes(planes: Planes, quality: int) -> bytes:
    """Encode a baseline JPEG.

    Args:
        planes: grey, or with chroma samples of 2×2 pixels (4:2:0).
        quality: 1 to 100.

    Raises:
        RuntimeError: the library failed, most likely for lack of memory.
    """
    mine = _this_thread()
    height, width = planes.y.shape
    grey = planes.cb is None or planes.cr is None
    # The library reads whole chroma samples, so with an odd side a column or row of luma beyond the picture.
    y = planes.y if grey else _even(planes.y)
    arrays = (y,) if grey else (y, planes.cb, planes.cr)
    pointers, strides = _Pointers(), _Strides()
    for number, array in enumerate(arrays):
        if array is None or array.strides[1] != 1:
            raise ValueError("the rows of a plane are not contiguous")
        pointers[number] = array.ctypes.data
        strides[number] = array.strides[0]
    # The longest that a file of 4:2:0 can be (bytes), as tjBufSize.
    memory = np.empty((-(-height // 16) * 16) * (-(-width // 16) * 16) * 3 + 2048, np.uint8)
    file, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_ulong(memory.size)
    if library().tjCompressFromYUVPlanes(
        mine.compressor,
        pointers,
        width,
        strides,
        height,
        _SAMP_GRAY if grey else _SAMP_420,
        ctypes.byref(file),
        ctypes.byref(size),
        quality,
        _ENCODE_FLAGS,
    ):
        raise RuntimeError("libturbojpeg could not encode the picture")
    return memory[: size.value].tobytes()
