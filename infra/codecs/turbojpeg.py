"""JPEG to planes and back: each a call of libturbojpeg (infra.codecs.libturbojpeg)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import cast

import cv2

from infra.codecs.formats import Pixels
from infra.codecs.libturbojpeg import library, this_thread

# turbojpeg.h: numbers of the sampling modes -> (vertical, horizontal) size of a chroma sample in pixels.
_SAMPLINGS = {0: (1, 1), 1: (1, 2), 2: (2, 2), 3: (1, 1), 4: (2, 1), 5: (1, 4)}
_SAMP_420, _SAMP_GRAY = 2, 3
_NAMES_OF_SAMPLINGS = {0: "4:4:4", 1: "4:2:2", 2: "4:2:0", 4: "4:4:0", 5: "4:1:1"}
_YCBCR, _GRAY = 1, 2
_NOREALLOC, _ACCURATE_DCT, _STOP_ON_WARNING, _LIMIT_SCANS = 1024, 4096, 8192, 32768
DECODE_FLAGS = _ACCURATE_DCT | _STOP_ON_WARNING | _LIMIT_SCANS
ENCODE_FLAGS = _NOREALLOC | _ACCURATE_DCT

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

    @property
    def is_grey(self) -> bool:
        return self.sampling == _SAMP_GRAY

    @property
    def sample(self) -> tuple[int, int]:
        """Height and width of a chroma sample (pixels)."""
        return _SAMPLINGS[self.sampling]

    @property
    def decoded_chroma(self) -> tuple[int, int]:
        """Rows and columns of a plane of chroma as it is decoded."""
        vertical, horizontal = self.sample
        return -(-self.height // vertical), -(-self.width // horizontal)

    @property
    def decoded_luma(self) -> tuple[int, int]:
        """Rows and columns of luma as it is decoded: the library writes whole samples of chroma."""
        (vertical, horizontal), (rows, columns) = self.sample, self.decoded_chroma
        return rows * vertical, columns * horizontal


def read_planar_header(data: bytes) -> PlanarHeader | None:
    """Size and sampling of a JPEG whose planes can be decoded; None for others, and for what is no JPEG."""
    mine = this_thread()
    if library().tjDecompressHeader3(mine.decompressor, data, len(data), *mine.header_at):
        mine.forget_failure()
        return None
    width, height, sampling, space = mine.header
    if space not in (_YCBCR, _GRAY) or sampling not in _SAMPLINGS:
        return None
    return PlanarHeader(height, width, sampling)


def decode_planes(data: bytes, header: PlanarHeader) -> Planes | None:
    """The planes of a JPEG; None where anything is amiss, if only a warning: a truncated file is no more.

    The planes lie in memory of the thread: they are valid until it decodes the next JPEG.

    Args:
        data: the file.
        header: as ``read_planar_header`` read it in the same bytes: the library trusts the sizes.
    """
    mine = this_thread()
    (rows, stride), (chroma_rows, chroma_stride) = header.decoded_luma, header.decoded_chroma
    luma, chroma = rows * stride, chroma_rows * chroma_stride
    memory = mine.memory_for_planes(luma + 2 * chroma)
    start = memory.ctypes.data
    pointers = _Pointers(start, start + luma, start + luma + chroma)
    strides = _Strides(stride, chroma_stride, chroma_stride)
    if library().tjDecompressToYUVPlanes(
        mine.decompressor, data, len(data), pointers, 0, strides, 0, DECODE_FLAGS
    ):
        mine.forget_failure()
        return None
    y = memory[:luma].reshape(rows, stride)[: header.height, : header.width]
    if header.is_grey:
        return Planes(y)
    cb, cr = memory[luma : luma + 2 * chroma].reshape(2, chroma_rows, chroma_stride)
    vertical, horizontal = header.sample
    return Planes(y, cb, cr, horizontal, vertical)


def _even(plane: Pixels) -> Pixels:
    """The plane with even sides, its last column and row repeated where they are odd."""
    height, width = plane.shape
    if height % 2 == 0 and width % 2 == 0:
        return plane
    return cast(Pixels, cv2.copyMakeBorder(plane, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE))


def stored_sampling(channels: int) -> int:
    """TurboJPEG's number of the sampling that pictures of 1 or 3 channels are stored with."""
    return _SAMP_GRAY if channels == 1 else _SAMP_420


def longest_file(height: int, width: int) -> int:
    """Bytes that the worst picture of this size (pixels) may need: tjBufSize of 4:2:0."""
    return (-(-height // 16) * 16) * (-(-width // 16) * 16) * 3 + 2048


def encode_planes(planes: Planes, quality: int) -> bytes:
    """Baseline JPEG of grey planes, or of planes with chroma samples of 2×2 pixels (4:2:0).

    Raises:
        RuntimeError: the library could not; memory, most likely.
    """
    mine = this_thread()
    height, width = planes.y.shape
    grey = planes.cb is None or planes.cr is None
    # The library reads whole chroma samples: with an odd side, a column or a row of luma beyond the picture.
    y = planes.y if grey else _even(planes.y)
    arrays = (y,) if grey else (y, planes.cb, planes.cr)
    pointers, strides = _Pointers(), _Strides()
    for number, array in enumerate(arrays):
        if array is None or array.strides[1] != 1:
            raise ValueError("the rows of a plane are not contiguous")
        pointers[number] = array.ctypes.data
        strides[number] = array.strides[0]
    memory = mine.memory_for_file(longest_file(height, width))
    file, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_ulong(memory.size)
    if library().tjCompressFromYUVPlanes(
        mine.compressor,
        pointers,
        width,
        strides,
        height,
        stored_sampling(1 if grey else 3),
        ctypes.byref(file),
        ctypes.byref(size),
        quality,
        ENCODE_FLAGS,
    ):
        raise RuntimeError("libturbojpeg could not encode the picture")
    return memory[: size.value].tobytes()
