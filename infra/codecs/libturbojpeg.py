"""The system's libturbojpeg (TurboJPEG's API 2, in 2.1 and 3.x), and what a thread has of it.

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
from pathlib import Path
from typing import Any

import numpy as np

from infra.codecs.formats import Pixels

# Path of the library in place of the system's; "none" does without.
LIBRARY_VARIABLE = "SHARDMILL_LIBTURBOJPEG"

_NAMES = ("libturbojpeg.so.0", "libturbojpeg.0.dylib")
_VERSION = re.compile(rb"libjpeg-turbo version (\d+\.\d+[\w. ]*(?:\(build \d+\))?)")

# Larger images get memory of their own, which they give back; up to here a thread keeps what it has.
_KEPT_BYTES = 24 << 20


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


class Thread:
    """What a thread keeps between images: handles, and memory that need not be mapped and zeroed again."""

    def __init__(self) -> None:
        self._library = library()
        self.decompressor = self._library.tjInitDecompress()
        self.compressor = self._library.tjInitCompress()
        self._planes: Pixels = np.empty(1 << 20, np.uint8)
        self._file: Pixels = np.empty(1 << 18, np.uint8)
        # What a header says: width, height, sampling and colour space, and where each is written.
        self.header = (ctypes.c_int * 4)()
        at = ctypes.addressof(self.header)
        self.header_at = (at, at + 4, at + 8, at + 12)

    def memory_for_planes(self, size: int) -> Pixels:
        """uint8 [at least size], of planes until the thread asks again."""
        self._planes = _room(self._planes, size)
        return self._planes if self._planes.size >= size else np.empty(size, np.uint8)

    def memory_for_file(self, size: int) -> Pixels:
        """uint8 [at least size], of an encoded file until the thread asks again."""
        self._file = _room(self._file, size)
        return self._file if self._file.size >= size else np.empty(size, np.uint8)

    def forget_failure(self) -> None:
        """Take a new handle: after an error TurboJPEG 2.1 goes on in the middle of the file that had it."""
        self._library.tjDestroy(self.decompressor)
        self.decompressor = self._library.tjInitDecompress()

    def __del__(self) -> None:
        self._library.tjDestroy(self.decompressor)
        self._library.tjDestroy(self.compressor)


def _room(memory: Pixels, size: int) -> Pixels:
    """Memory that a thread keeps: grown to what is needed, if that is not too much to keep."""
    if memory.size >= size or size > _KEPT_BYTES:
        return memory
    return np.empty(size + size // 2, np.uint8)


_local = threading.local()


def this_thread() -> Thread:
    """What the calling thread keeps. Needs the library."""
    mine: Thread | None = getattr(_local, "mine", None)
    if mine is None:
        mine = _local.mine = Thread()
    return mine
