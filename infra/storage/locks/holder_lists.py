"""The file or object that lists the holders of a lock, replaced only while nobody else has changed it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from shardmill.infra.errors import LockedError
from shardmill.infra.storage.local import TEMPORARY_PREFIX

_BUSY_SECONDS = 2.0  # a change of a file takes less than a millisecond


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


class HolderList(Protocol):
    """A list of holders in some store."""

    def read(self) -> Written | None:
        """The list; None if nobody has ever held the lock."""

    def write(self, data: bytes, found: Written | None) -> None:
        """Replace the list that was found.

        Raises:
            ListChanged: it is another one by now.
        """

    def now(self) -> float:
        """The time by the clock of the store (seconds since the epoch)."""


class HolderFile:
    """A list in a file of this machine or of a network file system.

    The file stays, and is changed in place under a lock of the kernel that is held for a moment: removing it
    would let one process change the removed file and another one a new file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Written | None:
        """The list; None if nobody has ever held the lock."""
        try:
            with self._path.open("rb") as stream, self._alone(stream, fcntl.LOCK_SH):
                return _written(stream)
        except FileNotFoundError:
            return None

    def write(self, data: bytes, found: Written | None) -> None:
        """Replace the list that was found.

        Raises:
            ListChanged: it is another one by now.
        """
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

    def now(self) -> float:
        """The time by the clock of the file system (seconds since the epoch)."""
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
