"""Write files on this machine so that they appear whole or not at all; name a file that cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from shardmill.infra.errors import StorageError

# No listing of a ``Storage`` shows names that begin so; a crash may leave some behind.
TEMPORARY_PREFIX = ".partial-"

_BUFFER_BYTES = 256 << 10  # written at a time: images of 25 kB one by one cost the system twice as much


@contextlib.contextmanager
def file_writer(
    final: Path,
    make_visible: Callable[[Path, Path], object] = os.replace,
    opener: Callable[[str, int], int] | None = None,
) -> Iterator[BinaryIO]:
    """A binary writer whose file appears, safe from a power cut, when the block ends without an error.

    Args:
        final: the file; its folders are made.
        make_visible: given the temporary file and ``final``; ``os.replace`` replaces an older file,
            ``os.link`` refuses to.
        opener: passed to ``open``; it may choose who can read the file.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # not to be taken for a file that is there already
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(final.parent)) from error
    partial = final.parent / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    try:
        with open(partial, "wb", _BUFFER_BYTES, opener=opener) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        make_visible(partial, final)
        _sync_folder(final.parent)
    finally:
        partial.unlink(missing_ok=True)


def create_file(final: Path, data: bytes) -> None:
    """Create the file with all of ``data``; exactly one of several writers succeeds.

    Raises:
        FileExistsError: the file is there already.
    """
    with file_writer(final, make_visible=os.link) as stream:
        stream.write(data)


def remove_temporary_files(folder: Path) -> None:
    """Remove the temporary files that killed writers left in and below ``folder``."""
    for partial in folder.rglob(f"{TEMPORARY_PREFIX}*"):
        partial.unlink(missing_ok=True)


def read_file_range(file: Path, offset: int, length: int) -> bytes:
    """``length`` bytes of the file from ``offset``; fewer only if the file ends."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writes(path: Path) -> Iterator[None]:
    """Raise a failure of the block to write ``path`` as an error that names the file.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        remedy = "name a file in a folder that is there and that you may write to"
        raise StorageError(f"cannot write {path}: {error.strerror or error}", remedy) from error
