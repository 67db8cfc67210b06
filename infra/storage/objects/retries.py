"""Read and write objects of a store through ``pyarrow.fs``, again after temporary failures; name the others.

Pauses are random, growing and bounded. An error names the file and a remedy.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.fs as pafs

from shardmill.infra.errors import GO_ON, NotFoundError, ObjectRefused, StorageError
from shardmill.infra.storage.locations import uri_of, without_secrets

_IN_MEMORY_BYTES = 8 << 20  # largest object written from memory; larger ones go through a temporary file
_COPY_BYTES = 4 << 20
T = TypeVar("T")

ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 8.0
DEADLINE_SECONDS = 60.0  # no attempt begins later than this after the first one

_FINAL_ERRORS = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
# S3 answers a request whose body came too slowly with status 400 and this code.
_PASSING_TEXT = re.compile(r"RequestTimeout|REQUEST_TIMEOUT")
# How clients name the requests that will never succeed. Other statuses, 408 and 429 among them, may pass.
_FINAL_TEXT = re.compile(
    r"ACCESS_DENIED|ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|NO_SUCH_BUCKET"
    r"|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket"
    r"|(?:HTTP status|status code:) (?:400|401|403|404|405|501)"
    r"|Azure Error: \[\w*\] (?:400|401|403|404|405|501)"
    r"|Azure Error: \[(?:BlobArchived|BlobBeingRehydrated)\]"  # status 409
)


def is_retryable(error: OSError) -> bool:
    """Tell whether the same request may succeed later: not if the store refused it or has no such object."""
    if isinstance(error, _FINAL_ERRORS):
        return False
    text = str(error)
    return _PASSING_TEXT.search(text) is not None or _FINAL_TEXT.search(text) is None


def retry(operation: Callable[[], T]) -> T:
    """Return the result of ``operation``, repeated while it raises a retryable ``OSError``.

    The pause before attempt n + 1 is drawn uniformly from 0 to 0.2 · 2ⁿ seconds, at most 8 ("full jitter":
    many clients that failed together do not come back together).

    Args:
        operation: safe to repeat: it has the same effect when done twice.

    Raises:
        OSError: the failure is final, or the last attempt failed.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    longest_pause = _FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS - 1):
        try:
            return operation()
        except OSError as error:
            if not is_retryable(error) or time.monotonic() > deadline:
                raise
        longest_pause = min(2 * longest_pause, _LONGEST_PAUSE_SECONDS)
        time.sleep(random.uniform(0, longest_pause))
    return operation()


@contextlib.contextmanager
def reading(file: str, location: str, *, is_local: bool) -> Iterator[None]:
    """Turn errors of reading a file into errors of ours.

    Args:
        file: for people.
        location: place of its storage; credentials in it are left out of messages.
        is_local: whether it is on this machine.

    Raises:
        NotFoundError: there is no such file. ObjectRefused: its store does not give it. StorageError: it
            cannot be read.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"no such file: {file}") from error
    except _FAULTS as error:
        if not is_local and _is_refusal(error):
            code = _CODE.search(str(error))
            said = f" ({next(filter(None, code.groups()))})" if code else ""
            raise ObjectRefused(f"cannot read {file}: the store refuses it{said}", _CONNECT) from error
        raise not_read(file, location, error, is_local=is_local) from error


def not_read(file: str, location: str, error: Exception, *, is_local: bool) -> StorageError:
    """Return an error of reading a file as one of ours; the arguments are those of ``reading``."""
    return _failure(f"cannot read {file}", location, error, _READABLE if is_local else _CONNECT)


@contextlib.contextmanager
def writing(file: str, location: str, *, is_local: bool) -> Iterator[None]:
    """Turn errors of writing a file into errors of ours, except ``FileExistsError``; see ``reading``."""
    try:
        yield
    except FileExistsError:
        raise
    except _FAULTS as error:
        raise _failure(
            f"cannot write {file}", location, error, _MAKE_ROOM if is_local else _CONNECT
        ) from error


@contextlib.contextmanager
def other_files_named() -> Iterator[None]:
    """Turn errors of other files in a block that writes a stream into errors that name those files.

    Errors of the stream itself name no file and pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, str | bytes):
            raise
        name = uri_of(os.fsdecode(error.filename))
        raise StorageError(f"{name}: {error.strerror or error}", "check this file or folder") from error


# Arrow's client of Azure reports missing credentials as no OSError.
_FAULTS = (OSError, pa.ArrowException)
# The part of a client's message that says what the store answered; the rest differs from request to request.
_CODE = re.compile(
    r"ExceptionName: ([\w.]+)|Azure Error: \[(\w+)\]|::Status\(([A-Z_]+)"
    r"|AWS Error (?:UNKNOWN \()?(HTTP status \d+|[A-Z_]+)"
)
# Arrow's client of S3, where a page that says why is longer than the object that was asked for.
_PAGE_IN_PLACE_OF_OBJECT = "Failed to flush response stream"
_CONNECT = f"check the network, the credentials and the store, then {GO_ON}"
_READABLE = "check the disk, and that it is a file that this user may read"
_MAKE_ROOM = f"check free space and permissions, then {GO_ON}"


def _is_refusal(error: Exception) -> bool:
    """Tell whether a store gave an answer, and would give the same again."""
    if isinstance(error, OSError):
        return not is_retryable(error) or _PAGE_IN_PLACE_OF_OBJECT in str(error)
    return isinstance(error, pa.ArrowInvalid)  # Arrow refuses the object's name


def _failure(what: str, location: str, error: Exception, remedy: str | None) -> StorageError:
    text = without_secrets(getattr(error, "strerror", None) or str(error), location)
    return StorageError(f"{what}: {text}", remedy)


class RangeReader(io.RawIOBase):
    """A seekable reader of ``_size`` bytes; ``read_at`` gets any range of them.

    ``read`` and ``seek`` are for one thread.
    """

    _size = _position = 0

    def read_at(self, length: int, offset: int) -> bytes:
        """``length`` bytes from ``offset``; fewer only if the object ends."""
        raise NotImplementedError

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


class ObjectReader(RangeReader):
    """A seekable reader of one object. ``read_at`` serves many threads; ``read`` and ``seek`` one.

    Each read is repeated while its failure may pass. (Arrow's own client repeats most requests, but not a
    short read that is answered with a long error page.)
    """

    def __init__(self, filesystem: pafs.FileSystem, key: str) -> None:
        super().__init__()
        self._stream: pa.NativeFile = retry(lambda: filesystem.open_input_file(key))
        self._size = retry(self._stream.size)

    def read_at(self, length: int, offset: int) -> bytes:
        """``length`` bytes from ``offset``; fewer only if the object ends."""
        return cast(bytes, retry(lambda: self._stream.read_at(length, offset)))

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the current position; return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the object."""
        if not self.closed and hasattr(self, "_stream"):  # Python closes it too where opening it failed
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

        def from_the_start() -> None:
            kept.seek(0)
            upload(cast(BinaryIO, kept))

        retry(from_the_start)


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
