"""A child process with all its descendants: what memory they hold, and how they end together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import psutil

GRACE_SECONDS = 10.0  # for a polite end: a checkpoint is written, a lock let go


def kill_tree(process: subprocess.Popen[bytes], grace_seconds: float | None = None) -> None:
    """End a child and all its descendants: politely, then by force. Returns when they are gone."""
    grace_seconds = GRACE_SECONDS if grace_seconds is None else grace_seconds
    tree = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=grace_seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for survivor in {*tree, *descendants(process.pid)}:
        with contextlib.suppress(psutil.NoSuchProcess):
            survivor.kill()
    process.wait()
    psutil.wait_procs(tree, timeout=GRACE_SECONDS)


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below this one; none where it is gone."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


class MemorySampler:
    """Largest resident memory (bytes) of a process tree, sampled while it runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.peak_bytes = 0

    def sample(self) -> int:
        """The tree's resident memory now (bytes); 0 where it is gone."""
        total = 0
        try:
            root = psutil.Process(self._pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    total += process.memory_info().rss
        except psutil.NoSuchProcess:
            return 0
        self.peak_bytes = max(self.peak_bytes, total)
        return total
