"""A container: one file of a source that holds many images, read a part at a time."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from shardmill.beam_jobs.reasons import CHANGED, UNREADABLE, VANISHED
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.errors import NotFoundError, ObjectRefused, StorageError

_WINDOW_BYTES = 4 << 20  # read at a time from an object store: a request for each small image is slow
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # this machine is at fault, not the file


class Ranges(Protocol):
    """An open file that is read by ranges: ``Container`` for instance."""

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only if the file ends."""

    def close(self) -> None:
        """Close the file."""


class _Opened(Ranges, Protocol):
    """An open file or object of a source."""

    @property
    def size_bytes(self) -> int: ...

    def mtime_ns(self) -> int: ...


class Window:
    """Ranges of a file, mostly one after the other: the next bytes are fetched with the same request.

    Args:
        ranges: the open file.
        window_bytes: bytes of a request.
    """

    def __init__(self, ranges: Ranges, window_bytes: int = _WINDOW_BYTES) -> None:
        self._ranges = ranges
        self._window_bytes = window_bytes
        self._start = 0
        self._data = b""

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only if the file ends."""
        if not self._start <= offset <= offset + length <= self._start + len(self._data):
            self._start = offset
            self._data = self._ranges.read_at(max(length, self._window_bytes), offset)
        return self._data[offset - self._start : offset - self._start + length]

    def close(self) -> None:
        """Close the file."""
        self._ranges.close()


class Container(io.RawIOBase):
    """A seekable reader of one container. Close it, or drop the last reference.

    Attributes:
        uri: URI of the container, relative to the source.
        size_bytes: its length.
    """

    def __init__(self, uri: str, ranges: _Opened) -> None:
        super().__init__()
        self.uri = uri
        self._ranges = ranges
        self.size_bytes = ranges.size_bytes
        self._position = 0

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only if the container ends.

        Raises:
            SourceFault: it cannot be read. StorageError: this machine is at fault.
        """
        with faults_of(self.uri):
            return self._ranges.read_at(length, offset)

    def check_unchanged(self, mtime_ns: int) -> None:
        """Check that the container is the one that was listed.

        Raises:
            SourceFault: its time of change is another.
        """
        with faults_of(self.uri):
            if self._ranges.mtime_ns() != mtime_ns:
                raise SourceFault(CHANGED, f"{self.uri} has changed since it was listed")

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to ``offset`` from the start, the current position or the end; return the new position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size_bytes}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the current position (bytes)."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the current position; return the number of bytes."""
        data = self.read_at(len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        """Close the container."""
        if not self.closed:
            self._ranges.close()
        super().close()


@contextlib.contextmanager
def faults_of(uri: str) -> Iterator[None]:
    """Turn errors of reading a file of a source into faults of that file.

    Raises:
        SourceFault: it is gone or unreadable. StorageError: this machine is at fault.
    """
    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise SourceFault(VANISHED, "it was listed, but gone when it was to be read") from error
    except ObjectRefused as error:
        raise SourceFault(UNREADABLE, error.message) from error
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise StorageError(f"cannot read {uri}: {error.strerror}") from error
        raise SourceFault(UNREADABLE, f"cannot be read: {error.strerror}") from error


class LocalRanges:
    """An open local file.

    Args:
        path: path of the file; the caller turns errors of the system into its own.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        # Without O_NONBLOCK this would wait for the writer of a pipe that took the file's place.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._path = path
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise SourceFault(UNREADABLE, "cannot be read: not a file")
        self.size_bytes = found.st_size

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only if the file ends."""
        data = os.pread(self._descriptor, length, offset)
        while 0 < len(data) < length and (
            more := os.pread(self._descriptor, length - len(data), offset + len(data))
        ):
            data += more
        return data

    def mtime_ns(self) -> int:
        """Return the time of change of the file that has this path now."""
        return Path(self._path).stat().st_mtime_ns

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()
