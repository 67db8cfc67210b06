"""Arrow tables: ids, digests and cutting, columns of lists, of texts and of features."""

from __future__ import annotations

import ctypes

import pyarrow as pa


def release_memory() -> None:
    """Return unused memory of Arrow and of the C library to the system (a few milliseconds).

    So the next stage does not add to what the last one needed.
    """
    pa.default_memory_pool().release_unused()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if malloc_trim is not None:
        malloc_trim(0)
