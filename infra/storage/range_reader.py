"""Read many small ranges of few large files: records in shards, images in spool blocks."""

from __future__ import annotations

import os
import threading
from typing import Any, cast

from shardmill.infra.errors import NotFoundError, StorageError
from shardmill.infra.storage.filesystem import Storage


class RangeReader:
    """Reads ranges of many files of one storage with few open descriptors; safe for many threads.

    Local files are read with ``os.pread``, which needs no seek and no lock.
    """

    def __init__(self, storage: Storage, max_open: int = 64) -> None:
        self._storage = storage
        self._max_open = max_open
        self._open: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[RangeReader], tuple[Storage, int]]:
        return RangeReader, (self._storage, self._max_open)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """``length`` bytes of ``path`` from ``offset``; fewer only if the file ends."""
        stream = self._stream(path)
        if self._storage.is_local:
            return os.pread(stream.fileno(), length, offset)
        return cast(bytes, stream.read_at(length, offset))

    def _stream(self, path: str) -> Any:
        with self._lock:
            stream = self._open.pop(path, None)
            if stream is None:
                stream = self._opened(path)
            self._open[path] = stream  # the newest is last, so the first is the least recently used
            if len(self._open) > self._max_open:
                # Dropped, not closed: another thread may be reading it; the last reference closes it.
                self._open.pop(next(iter(self._open)))
            return stream

    def _opened(self, path: str) -> Any:
        local = self._storage.local_path(path)
        if local is None:
            return self._storage.open_object(path)
        try:
            return Descriptor(os.open(local, os.O_RDONLY))
        except FileNotFoundError as error:
            raise NotFoundError(f"no such file: {local}") from error
        except OSError as error:
            raise StorageError(f"cannot read {local}: {error.strerror}") from error

    def close(self) -> None:
        """Release all open files."""
        with self._lock:
            self._open.clear()


class Descriptor:
    """A file descriptor that closes itself with its last reference."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The number of the descriptor."""
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)
