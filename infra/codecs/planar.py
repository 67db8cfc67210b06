"""The ordinary way of one JPEG in one compiled call: planes decoded, shrunk, summed, encoded without Python.

``planar.c`` gives what ``planes``, ``moments``, ``perceptual`` and ``turbojpeg`` give, to the bit, in 840 µs
a photograph (400×533 pixels to 256) in place of 940, and without the GIL. It takes whole upright pictures
that shrink. For all others, and wherever anything is amiss, it steps aside for the Python code, which knows
what to do and what to say. Where it is not there or gives anything else on this machine, it is not used.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from infra.codecs import area
from infra.codecs.formats import Pixels
from infra.codecs.libturbojpeg import library, this_thread
from infra.codecs.moments import Statistics, Sums, halve, plane_statistics, statistics_of
from infra.codecs.perceptual import THUMBNAIL_SIDE, halvings, thumbnail
from infra.codecs.planes import fit, samples_covered
from infra.codecs.resize import Geometry
from infra.codecs.turbojpeg import (
    DECODE_FLAGS,
    ENCODE_FLAGS,
    PlanarHeader,
    Planes,
    decode_planes,
    encode_planes,
    longest_file,
    read_planar_header,
    stored_sampling,
)
from infra.compiled import load_compiled

_NOT_DECODED = 1  # planar.c
_BLACK = (0, 0, 0)  # a whole picture has no background
# As many sizes as come along in most data sets, each with up to 100 kB of shares.
_KEPT_PLANS = 64


@dataclass(frozen=True, slots=True)
class ShrunkJpeg:
    """A JPEG that was shrunk.

    Attributes:
        image: the new file.
        statistics: mean and standard deviation of each channel, before encoding.
        thumbnail: uint8 [32, 32], for infra.codecs.perceptual.
    """

    image: bytes
    statistics: Statistics
    thumbnail: Pixels


class _Codec(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("decode", "encode", "decompressor", "compressor"))


_Size = ctypes.c_int32 * 2  # height, width


class _Sizes(ctypes.Structure):
    _fields_ = (
        ("decoded", _Size * 2),
        ("before", _Size * 3),
        ("after", _Size * 3),
        ("halvings", ctypes.c_int32),
        ("decode_flags", ctypes.c_int32),
        ("encode_flags", ctypes.c_int32),
        ("subsampling", ctypes.c_int32),
        ("quality", ctypes.c_int32),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        # total and squares of luma, of luma halved, of cb and of cr; then the products
        ("sums", ctypes.c_int64 * 11),
        ("file_size", ctypes.c_uint64),
        ("thumbnail", ctypes.c_uint8 * THUMBNAIL_SIDE**2),
    )


class _Kept(threading.local):
    """What a thread hands to the compiled code, and gets from it."""

    def __init__(self) -> None:
        loaded = library()
        self.codec, self.result = _Codec(), _Result()
        self.codec.decode = ctypes.cast(loaded.tjDecompressToYUVPlanes, ctypes.c_void_p).value
        self.codec.encode = ctypes.cast(loaded.tjCompressFromYUVPlanes, ctypes.c_void_p).value
        self.codec_at, self.result_at = ctypes.addressof(self.codec), ctypes.addressof(self.result)
        self.thumbnail = np.frombuffer(self.result.thumbnail, np.uint8).reshape(
            THUMBNAIL_SIDE, THUMBNAIL_SIDE
        )


@functools.cache
def _kept() -> _Kept:
    return _Kept()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What all pictures of one size have in common.

    Attributes:
        content: laid down by planar.c, which only reads it from then on.
        at: where it lies.
        memory: bytes that a call needs.
        file: bytes that the new file may have.
        luma_size: pixels of the stored picture.
        halved_size: pixels of its halved luma; 0 where it is grey.
    """

    content: Any
    at: int
    memory: int
    file: int
    luma_size: int
    halved_size: int


def shrink_jpeg(
    data: bytes, header: PlanarHeader, to: Geometry, channels: int, quality: int
) -> ShrunkJpeg | None:
    """Shrink a whole upright JPEG.

    Args:
        data: the file.
        header: as ``read_planar_header`` read it in the same bytes.
        to: where the pixels go.
        channels: 1 for grey, 3 for colour.
        quality: 1 to 100, of the new file.

    Returns:
        None where it is for the Python code to do.
    """
    if not to.keeps_all_of(header.height, header.width) or not is_used():
        return None
    return _shrink(data, header, to.scaled, channels, quality)


def is_used() -> bool:
    """Whether the compiled code is there, gives what the Python code gives, and may be used."""
    return area.is_used() and library() is not None and _agrees()


def _shrink(
    data: bytes, header: PlanarHeader, scaled: tuple[int, int], channels: int, quality: int
) -> ShrunkJpeg | None:
    plan = _plan(header, scaled, channels, quality)
    if plan is None:
        return None
    thread, kept = this_thread(), _kept()
    codec, result = kept.codec, kept.result
    codec.decompressor, codec.compressor = thread.decompressor, thread.compressor
    memory, file = thread.memory_for_planes(plan.memory), thread.memory_for_file(plan.file)
    file_at = file.ctypes.data
    result.file_size = file.size
    failure = _compiled().shardmill_shrink(
        kept.codec_at, plan.at, data, len(data), memory.ctypes.data, file_at, kept.result_at
    )
    if failure:
        if failure == _NOT_DECODED:
            thread.forget_failure()
        return None
    luma, luma_squares, y, yy, cb, cb_squares, cr, cr_squares, *products = result.sums
    sums = Sums(
        *(plan.luma_size, luma, luma_squares, plan.halved_size),
        *((y, cb, cr), (yy, cb_squares, cr_squares), products),
    )
    return ShrunkJpeg(ctypes.string_at(file_at, result.file_size), statistics_of(sums), kept.thumbnail.copy())


@functools.lru_cache(_KEPT_PLANS)
def _plan(header: PlanarHeader, scaled: tuple[int, int], channels: int, quality: int) -> _Plan | None:
    """None where the picture is for the Python code to do."""
    height, width = scaled
    halved = height // 2, width // 2
    count = halvings(height, width)
    scalings = (
        ((header.height, header.width), scaled),
        _of_chroma(header, scaled, channels),
        ((height >> count, width >> count), (THUMBNAIL_SIDE, THUMBNAIL_SIDE)),
    )
    if (header.height, header.width) == scaled or not min(halved) or not all(map(_is_ordinary, scalings)):
        return None
    sizes = _Sizes(
        halvings=count,
        decode_flags=DECODE_FLAGS,
        encode_flags=ENCODE_FLAGS,
        subsampling=stored_sampling(channels),
        quality=quality,
    )
    chroma = (0, 0) if header.is_grey else header.decoded_chroma
    sizes.decoded[:] = _Size(*header.decoded_luma), _Size(*chroma)
    sizes.before[:] = [_Size(*before) for before, _ in scalings]
    sizes.after[:] = [_Size(*after) for _, after in scalings]
    at = ctypes.byref(sizes)
    content = (ctypes.c_double * (-(-_compiled().shardmill_plan_bytes(at) // 8)))()
    memory = _compiled().shardmill_plan(at, content)
    return _Plan(
        content,
        ctypes.addressof(content),
        memory,
        longest_file(height, width),
        height * width,
        halved[0] * halved[1] if channels == 3 else 0,
    )


_Scaling = tuple[tuple[int, int], tuple[int, int]]


def _of_chroma(header: PlanarHeader, scaled: tuple[int, int], channels: int) -> _Scaling:
    """(height, width) of a plane of chroma before and after."""
    if channels == 1:
        return (0, 0), (0, 0)
    after = -(-scaled[0] // 2), -(-scaled[1] // 2)
    if header.is_grey:
        return after, after
    vertical, horizontal = header.sample
    rows = samples_covered(header.height, vertical, scaled[0])
    return (rows, samples_covered(header.width, horizontal, scaled[1])), after


def _is_ordinary(scaling: _Scaling) -> bool:
    """Whether the compiled code scales it: to half, or as OpenCV does where it does not count in integers."""
    before, after = scaling
    if before == after or before == (2 * after[0], 2 * after[1]):
        return True
    return before[0] >= after[0] and before[1] >= after[1] and not area.is_whole_ratio(before, after)


@functools.cache
def _compiled() -> Any:
    """The compiled code, or None where there is none."""
    compiled = load_compiled(Path(__file__).with_name("_planar"))
    if compiled is None:
        return None
    pointer = ctypes.c_void_p
    compiled.shardmill_plan_bytes.argtypes = (pointer,)
    compiled.shardmill_plan.argtypes = (pointer, pointer)
    compiled.shardmill_plan_bytes.restype = compiled.shardmill_plan.restype = ctypes.c_size_t
    compiled.shardmill_shrink.argtypes = (
        *(pointer, pointer, ctypes.c_char_p, ctypes.c_ulong),
        *(pointer, pointer, pointer),
    )
    return compiled


@functools.cache
def _agrees() -> bool:
    """Whether it gives what the Python code gives, to the bit, on a picture that takes every part of it."""
    noise = (np.arange(301 * 203, dtype=np.uint32) * 2654435761 >> 24).astype(np.uint8)
    y, cb, cr = noise.reshape(301, 203), noise[:15402].reshape(151, 102), noise[9999:25401].reshape(151, 102)
    data = encode_planes(Planes(y, cb, cr, 2, 2), 90)
    header = read_planar_header(data)
    assert header is not None, "what the library writes it reads"
    found = _shrink(data, header, (199, 134), 3, 90)
    expected = _in_steps(data, header, (199, 134), 3, 90)
    return (
        found is not None
        and (found.image, found.statistics) == (expected.image, expected.statistics)
        and np.array_equal(found.thumbnail, expected.thumbnail)
    )


def _in_steps(
    data: bytes, header: PlanarHeader, scaled: tuple[int, int], channels: int, quality: int
) -> ShrunkJpeg:
    planes = decode_planes(data, header)
    assert planes is not None, "what the library writes it decodes"
    whole = Geometry((0, 0, header.height, header.width), scaled, scaled, (0, 0))
    small = fit(planes, whole, channels, _BLACK)
    halved = halve(small.y)
    return ShrunkJpeg(
        encode_planes(small, quality), plane_statistics(small, halved), thumbnail(small.y, halved)
    )
