"""Memory that a stage no longer needs goes back to the system; the next stage does not come on top of it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_MALLOPT_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h
_ARENAS = 2
_MALLOPT_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD
_LARGE_BYTES = 128 << 10  # what it is at first
_COLUMN_BYTES = 32 << 10  # of a few thousand rows


def choose_allocators() -> None:
    """Choose allocators that keep little in reserve. Call it before pyarrow is loaded.

    Arrow's own keeps what tables are copied through, which is as much again as the tables. And the C library
    keeps a reserve for each thread, of which Beam has dozens.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = _of_libc("mallopt")
    if mallopt is not None:
        mallopt(_MALLOPT_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return to the system what lies unused in the C library's reserves (a few milliseconds)."""
    malloc_trim = _of_libc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


@contextmanager
def columns_given_back() -> Iterator[None]:
    """Return columns to the system as soon as they are free; and after that, what is larger still.

    By itself the C library takes what was large and came back as a sign that more of it will be wanted, and
    keeps it. That is right for images, one after the other, and wrong for the columns of a plan.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is not None:
        mallopt(_MALLOPT_MMAP_THRESHOLD, _COLUMN_BYTES)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(_MALLOPT_MMAP_THRESHOLD, _LARGE_BYTES)


def _of_libc(name: str) -> ctypes._NamedFuncPointer | None:
    """A function of glibc; None where the C library is another one."""
    return getattr(ctypes.CDLL(None), name, None)
