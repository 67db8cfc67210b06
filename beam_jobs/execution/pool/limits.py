"""Limits on the time and memory of a process: set from inside, or watched from outside.

Waiting for a free processor does not count as time used (Linux only, ``/proc/<pid>/schedstat``), so a busy
machine does not make a file look hung.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Literal

from shardmill.beam_jobs.execution.task import Limits
from shardmill.beam_jobs.schemas import FileRef
from shardmill.infra.processes.trees import resident_bytes

# Resident memory of a process before it decodes its first image, at most (bytes).
OWN_BYTES = 512 << 20

_OPENCV_NO_MEMORY = -4  # cv::Error::StsNoMem
_MESSAGES = ("out of memory", "insufficient memory")  # errors of Pillow, libjpeg and OpenCV

Excess = Literal["time", "memory"]


class MemoryRanOut(Exception):
    """A library got no memory while a file was being processed."""

    def __init__(self, file: FileRef) -> None:
        super().__init__(file)
        self.file = file


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether a library got no memory, judged by its error and by the errors that caused it."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "code", None) == _OPENCV_NO_MEMORY:
            return True
        if any(message in str(error).lower() for message in _MESSAGES):
            return True
        error = error.__cause__ or error.__context__
    return False


def limit_memory(more_bytes: int) -> None:
    """Allow this process so much more memory than it has now (bytes), and no core dump.

    Limits writable memory; reserved address space does not count. Where the system has no ``/proc``, only a
    watch from outside limits memory.
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


class Watch:
    """Compares a process with the limits of the file that it is processing.

    Args:
        pid: process number.
        limits: time (seconds) and memory (bytes) allowed for a file.
    """

    def __init__(self, pid: int, limits: Limits) -> None:
        self._pid = pid
        self._limits = limits
        self._since: float | None = None
        self._waited_before = 0.0

    def excess(self, since: float | None) -> Excess | None:
        """Return which limit is exceeded now, "time" or "memory", or None; call it a few times a second.

        Args:
            since: when processing of the file began (seconds of time.monotonic); None while there is none.
        """
        if since != self._since:
            self._since, self._waited_before = since, _seconds_without_processor(self._pid)
        if since is None:
            return None
        elapsed = time.monotonic() - since
        if elapsed > self._limits.seconds:
            waited = _seconds_without_processor(self._pid) - self._waited_before
            if elapsed - waited > self._limits.seconds:
                return "time"
        if resident_bytes(self._pid) > OWN_BYTES + self._limits.memory_bytes:
            return "memory"
        return None


def _seconds_without_processor(pid: int) -> float:
    """Return how long the main thread was ready to run but had to wait (seconds); 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
