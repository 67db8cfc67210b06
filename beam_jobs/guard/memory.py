"""Limits on the memory of a process, and what it looks like when they are met."""

from __future__ import annotations

import resource
from pathlib import Path

_OPENCV_NO_MEMORY = -4  # cv::Error::StsNoMem
_TOLD = ("out of memory", "insufficient memory")  # by Pillow, by libjpeg and OpenCV


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether a library got no memory, by its error or by one that became it on the way."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "code", None) == _OPENCV_NO_MEMORY:
            return True
        if any(told in str(error).lower() for told in _TOLD):
            return True
        error = error.__cause__ or error.__context__
    return False


def limit_memory(more_bytes: int) -> None:
    """Let this process have so much more memory than it has now (bytes), and not dump core.

    Limits writable memory, so what is only reserved costs nothing. Where the system has no ``/proc``, only
    the watch over resident memory (beam_jobs.guard.trial) applies.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    now_bytes = int(statm.read_text().split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = now_bytes + more_bytes
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
