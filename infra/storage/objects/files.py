"""Read and write single objects of an object store, through ``pyarrow.fs``, with retries."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.fs as pafs

from shardmill.infra.storage.objects.retries import retry

_IN_MEMORY_BYTES = 8 << 20  # largest object written from memory; larger ones go through a temporary file
_COPY_BYTES = 4 << 20


class ObjectReader(io.RawIOBase):
    """A seekable reader of one object. ``read_at`` serves many threads; ``read`` and ``seek`` one.

    Each read is repeated while its failure may pass. (Arrow's own client repeats most requests, but not a
    short read that is answered with a long error page.)
    """

    def __init__(self, filesystem: pafs.FileSystem, key: str) -> None:
        super().__init__()
        self._stream: pa.NativeFile = retry(lambda: filesystem.open_input_file(key))
        self._size: int = retry(self._stream.size)
        self._position = 0

    def read_at(self, length: int, offset: int) -> bytes:
        """``length`` bytes from ``offset``; fewer only if the object ends."""
        return cast(bytes, retry(lambda: self._stream.read_at(length, offset)))

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to ``offset`` from the start, the current position or the end; return the new position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The current position (bytes)."""
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes from the current position; all that are left where it is negative or None."""
        left = max(self._size - self._position, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self.read_at(wanted, self._position) if wanted else b""
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the current position; return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the object."""
        if not self.closed:
            self._stream.close()
        super().close()


@contextlib.contextmanager
def object_writer(upload: Callable[[BinaryIO], None]) -> Iterator[BinaryIO]:
    """A binary writer whose object appears whole when the block ends without an error.

    The bytes are kept until then, so that the upload can be repeated and a failed block leaves no half
    upload.

    Args:
        upload: writes the object from a file that holds its bytes.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as kept:
        yield cast(BinaryIO, kept)
        retry(lambda: _from_the_start(upload, cast(BinaryIO, kept)))


def _from_the_start(upload: Callable[[BinaryIO], None], data: BinaryIO) -> None:
    data.seek(0)
    upload(data)


def upload(filesystem: pafs.FileSystem, key: str, data: BinaryIO) -> None:
    """Write an object from the current position of a file, in parts if it is large."""
    # Without compression=None, Arrow would compress an object whose name ends in .gz.
    stream = filesystem.open_output_stream(key, compression=None)
    try:
        shutil.copyfileobj(data, stream, _COPY_BYTES)
    except BaseException:
        # close() completes an upload, so a failed one must not reach it.
        with contextlib.suppress(AttributeError, OSError):
            cast(Any, stream).abort()
        raise
    stream.close()
