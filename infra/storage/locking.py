"""Locks of the kernel (``flock``) on this machine, and the lists of holders that leases are made of.

A list of holders is a file or an object, replaced only while nobody else has changed it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import socket
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil
from typing_extensions import override

from shardmill.infra.errors import LockedError
from shardmill.infra.storage.local import TEMPORARY_PREFIX

_BUSY_SECONDS = 2.0  # a change of a file takes less than a millisecond


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
    """Return when a process of this machine started (clock ticks since the boot; hundredths since 1970).

    -1 if there is no such process, and 0 if nobody can tell: of another user whose processes are hidden
    (hidepid of proc(5)).
    """
    try:
        # proc(5): the name of the program, in brackets, may hold spaces; the state is the next field.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if not Path("/proc/self").exists():  # not Linux
            return _started_by_psutil(pid)
        return 0 if _exists(pid) else -1
    return -1 if fields[0] == "Z" else int(fields[19])


def has_ended(pid: int, started: int) -> bool:
    """Tell whether the process that started then is known to have ended."""
    now = started_at(pid)
    return now == -1 or (0 not in (now, started) and now != started)


def _started_by_psutil(pid: int) -> int:
    try:
        process = psutil.Process(pid)
        is_zombie = process.status() == psutil.STATUS_ZOMBIE
        return -1 if is_zombie else round(100 * process.create_time())
    except psutil.ZombieProcess:
        return -1
    except (psutil.Error, OSError):  # where psutil needs /proc, it takes no process for there
        return 0 if _exists(pid) else -1


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it may not be sent a signal
        return True
    return True


class Lock:
    """A lock that is held; this one by the kernel, until it is released or its process ends."""

    def ensure_held(self) -> None:
        """Check that the lock is still held, just before something that must not happen without it.

        Raises:
            LockedError: the lock was lost. The kernel takes none away.
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
        yield Lock()


@dataclass(frozen=True, slots=True)
class Written:
    """The content of a list, and the state of the stored file or object.

    Attributes:
        data: the bytes.
        tag: state of the object, for a conditional write; None for a file.
        modified_at: when it was written, by the clock of its store (seconds since the epoch).
    """

    data: bytes
    tag: dict[str, str] | None
    modified_at: float


class ListChanged(Exception):
    """Another process has changed the list since it was read."""


class HolderList(ABC):
    """A list of holders in some store."""

    @abstractmethod
    def read(self) -> Written | None:
        """The list; None if nobody has ever held the lock."""

    @abstractmethod
    def write(self, data: bytes, found: Written | None) -> None:
        """Replace the list that was found.

        Raises:
            ListChanged: it is another one by now.
        """

    @abstractmethod
    def now(self) -> float:
        """The time by the clock of the store (seconds since the epoch)."""


class HolderFile(HolderList):
    """A list in a file of this machine or of a network file system.

    The file stays, and is changed in place under a lock of the kernel that is held for a moment: removing it
    would let one process change the removed file and another one a new file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @override
    def read(self) -> Written | None:
        try:
            with self._path.open("rb") as stream, self._alone(stream, fcntl.LOCK_SH):
                return _written(stream)
        except FileNotFoundError:
            return None

    @override
    def write(self, data: bytes, found: Written | None) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with (
            os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as stream,
            self._alone(stream, fcntl.LOCK_EX),
        ):
            if _written(stream).data != (found.data if found else b""):
                raise ListChanged
            # The shorter rest goes last: a process that is killed in between leaves a whole list.
            written = os.pwrite(stream.fileno(), data, 0)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            os.ftruncate(stream.fileno(), len(data))

    @override
    def now(self) -> float:
        probe = self._path.parent / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        try:
            with probe.open("xb") as stream:
                return os.fstat(stream.fileno()).st_mtime
        finally:
            probe.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _alone(self, stream: BinaryIO, kind: int) -> Iterator[None]:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                fcntl.flock(stream, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(stream.fileno(), 20, 0).decode("ascii", "replace").strip()
                    raise LockedError(
                        f"another process (pid {holder if holder.isdigit() else 'unknown'}) "
                        f"locks {self._path}",
                        "wait for it to end, or stop it",
                    ) from None
                time.sleep(0.01)
        try:
            yield
        finally:
            fcntl.flock(stream, fcntl.LOCK_UN)


def _written(stream: BinaryIO) -> Written:
    status = os.fstat(stream.fileno())
    return Written(os.pread(stream.fileno(), status.st_size, 0), None, status.st_mtime)
