"""Bind the system's libturbojpeg (TurboJPEG's API 2, in 2.1 and 3.x), with handles for each thread.

The binding is our own because one call for each step is enough. PyTurboJPEG copies planes and files, and its
current release refuses the library of Debian 12. Calls release the GIL. Each thread has its own handles.

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
from pathlib import Path
from typing import Any

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


class Handles:
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


def this_thread() -> Handles:
    """Return the calling thread's handles. Needs the library."""
    mine: Handles | None = getattr(_local, "mine", None)
    if mine is None:
        mine = _local.mine = Handles()
    return mine
