"""Memory that a stage no longer needs goes back to the system, so that the next stage does not add to it."""

from __future__ import annotations

import ctypes


def release_memory() -> None:
    """Return unused memory of the C library to the system (a few milliseconds)."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only
    if malloc_trim is not None:
        malloc_trim(0)
