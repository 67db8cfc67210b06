"""Measure the memory of a child process and all its descendants, end them together, and find free memory."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

# Not every kernel has it (CONFIG_PROC_CHILDREN).
_KNOWS_CHILDREN = Path("/proc/thread-self/children")
_KNOWS_STATM = Path("/proc/self/statm").exists()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC_BYTES = 1 << 12  # the kernel gives a page at a time
_GROWTH = 50  # a fiftieth more memory is worth a closer look
_SAMPLES = 5  # so often it is worth one in any case

SAMPLE_SECONDS = 0.2  # between two looks at a running process, at least
_BUSY_SHARE = 100  # looking takes at most one part in so many of a processor

GRACE_SECONDS = 10.0  # for a polite end: a checkpoint is written, a lock let go


def wait_for_end(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a child for so long at most; whether it ended.

    Where the system can tell at once, it does: ``Popen.wait`` looks only every 50 ms.
    """
    if hasattr(os, "pidfd_open") and process.poll() is None:
        with contextlib.suppress(OSError):  # a kernel before 5.3 or a strict sandbox refuses it
            descriptor = os.pidfd_open(process.pid)
            try:
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                ended.poll(seconds * 1000)
            finally:
                os.close(descriptor)
            return process.poll() is not None
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    return process.returncode is not None


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


def lives(process: psutil.Process) -> bool:
    """Tell whether a process runs. One that has ended stays in the system's list until its parent notices."""
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below this one; none where it is gone."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


class MemorySampler:
    """Largest memory of a process tree, sampled while it runs.

    Attributes:
        peak_bytes: what processes share, such as libraries, and what a forked one has not written to, is
            divided among them ("proportional" in proc(5)); resident memory if the system does not tell.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._divided_at = 0
        self._taken = 0
        self._due = 0.0
        self.peak_bytes = 0

    def look(self) -> None:
        """Sample, unless the last time was so costly that it is too early; call it every SAMPLE_SECONDS."""
        if time.monotonic() >= self._due:
            began = time.thread_time()
            self.sample()
            self._due = time.monotonic() + _BUSY_SHARE * (time.thread_time() - began)

    def sample(self) -> None:
        """Sample the memory of the tree now."""
        pids = _pids_of_tree(self._pid)
        resident = sum(map(resident_bytes, pids))
        # The system takes milliseconds to divide shared memory: asked only if resident memory has grown, and
        # now and then, since memory that a forked process writes to becomes its own without growing.
        self._taken += 1
        if resident > self._divided_at + self._divided_at // _GROWTH or self._taken % _SAMPLES == 0:
            self._divided_at = max(self._divided_at, resident)
            self.peak_bytes = max(self.peak_bytes, sum(map(_proportional_bytes, pids)))


@contextlib.contextmanager
def sampled_memory() -> Iterator[MemorySampler]:
    """Sample the memory of this process and its descendants on a thread while the block runs."""
    memory = MemorySampler(os.getpid())
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            memory.look()

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()
    memory.sample()


def _pids_of_tree(pid: int) -> list[int]:
    """A process and its descendants, without a search through all processes of the system where it can be."""
    found, at = [pid], 0
    while at < len(found):
        try:
            with os.scandir(f"/proc/{found[at]}/task") as threads:
                for thread in threads:
                    found += map(int, _read_proc(f"{thread.path}/children").split())
        except (FileNotFoundError, ProcessLookupError):
            if not _KNOWS_CHILDREN.exists():
                return [pid, *(process.pid for process in descendants(pid))]
        at += 1
    return found


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process (bytes); 0 if it is gone."""
    try:
        return int(_read_proc(f"/proc/{pid}/statm").split()[1]) * _PAGE_BYTES
    except OSError:
        if _KNOWS_STATM:
            return 0
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _proportional_bytes(pid: int) -> int:
    try:
        rollup = _read_proc(f"/proc/{pid}/smaps_rollup")
    except OSError:
        return resident_bytes(pid)
    return next((int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith(b"Pss:")), 0)


def _read_proc(path: str) -> bytes:
    """Read a file of the kernel's, without the time that a stream takes.

    Raises:
        OSError: it is not there, or must not be read.
    """
    descriptor, parts = os.open(path, os.O_RDONLY), list[bytes]()
    try:
        while part := os.read(descriptor, _PROC_BYTES):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


_CGROUP = Path("/sys/fs/cgroup")


def free_memory_bytes() -> int:
    """Return how much memory processes may still take here (bytes)."""
    try:
        free = psutil.virtual_memory().available
    except OSError:  # Linux without /proc
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no container
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))
