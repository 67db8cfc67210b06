"""The interface of a lock, the locks that a process holds, and kernel locks of one machine (``flock``)."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from shardmill.infra.errors import LockedError


@functools.cache
def kernel() -> str:
    """Return a name that is equal in all processes of a machine, in any container, until it restarts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return f"{socket.gethostname()}/{uuid.getnode()}"


@functools.cache
def machine() -> str:
    """Return a name that is equal in all processes that can see each other's process ids."""
    try:
        return f"{kernel()}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return kernel()


def started_at(pid: int) -> int:
    """Return when a process of this machine started (clock ticks since the boot).

    -1 if there is no such process, and 0 if nobody can tell: not on Linux, or of another user whose processes
    are hidden (hidepid of proc(5)).
    """
    try:
        # proc(5): the name of the program, in brackets, may hold spaces; the state is the next field.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0 if _exists(pid) else -1
    return -1 if fields[0] == "Z" else int(fields[19])


def has_ended(pid: int, started: int) -> bool:
    """Tell whether the process that started then is known to have ended."""
    now = started_at(pid)
    return now == -1 or (0 not in (now, started) and now != started)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it may not be sent a signal
        return True
    return True


class Lock(Protocol):
    """A lock that is held."""

    def ensure_held(self) -> None:
        """Check that the lock is still held, just before something that must not happen without it.

        Raises:
            LockedError: the lock was lost.
        """


class HeldLocks:
    """The locks under which a process writes to a storage."""

    def __init__(self) -> None:
        self._held: list[Lock] = []

    @contextlib.contextmanager
    def holding(self, lock: Lock) -> Iterator[None]:
        """Let nothing be written in the block once ``lock`` is lost."""
        self._held.append(lock)
        try:
            yield
        finally:
            self._held.remove(lock)

    def ensure_held(self) -> None:
        """Check every lock of the blocks that are running.

        Raises:
            LockedError: one of them was lost.
        """
        for lock in list(self._held):
            lock.ensure_held()


class KernelLock:
    """A lock of the kernel: it is held until it is released or its process ends."""

    def ensure_held(self) -> None:
        """Do nothing: the kernel takes no lock away."""


@contextlib.contextmanager
def kernel_lock(file: Path, *, exclusive: bool, purpose: str) -> Iterator[Lock]:
    """Hold a lock on a small file, which stays behind.

    Removing the file would let one process lock the removed file and another one a new file.

    Args:
        file: its folders are made.
        exclusive: hold it alone; otherwise others may share it.
        purpose: what the holder does, for the error of those that wait.

    Raises:
        LockedError: another process holds it. OSError: the file cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as stream:
        try:
            fcntl.flock(stream, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            stream.seek(0)
            holder = stream.read().strip() or "unknown"
            raise LockedError(
                f"another process (pid {holder}) is busy with {purpose}; it locks {file}",
                "wait for it to end, or stop it",
            ) from error
        if exclusive:
            stream.truncate(0)
            stream.write(f"{os.getpid()}\n")
            stream.flush()
        yield KernelLock()
