"""Unpacked copies of compressed files, whose rows can only be read one after the other.

A copy is made once for all workers, in the run's folder, before images are read. Where there is none, outside
of a run, the reader makes one for itself that vanishes with it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from shardmill.beam_jobs.sources.rows.ranges import Ranges, Window
from shardmill.beam_jobs.sources.rows.row_files import RowFile
from shardmill.infra.digests import digest_of
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import Descriptor, RangeReader

_CHUNK_BYTES = 1 << 20

Opens = Callable[[], AbstractContextManager[BinaryIO]]  # opens what a file unpacks to, from its start


class PackedDataBroken(Exception):
    """Compressed data ends early or is damaged. Everything before was read."""


def keep_unpacked(file: RowFile, part: str, opens: Opens, scratch: Storage) -> None:
    """Unpack a file to the run's folder, as far as it is whole, unless a copy is there.

    Args:
        file: the compressed file.
        part: of the file that is unpacked, such as a member; "" for all of it.
        opens: opens the unpacked data; raises PackedDataBroken where it is damaged.
        scratch: folder of the run.
    """
    path = _path(file, part)
    if not scratch.exists(path):
        with scratch.atomic_writer(path) as sink, opens() as source:
            _copy(source, sink)


def open_unpacked(file: RowFile, part: str, opens: Opens, scratch: Storage | None) -> Ranges:
    """Open the unpacked copy of a file, or make one. See ``keep_unpacked``."""
    path = _path(file, part)
    if scratch is not None and scratch.exists(path):
        copy = _KeptCopy(scratch, path)
        return copy if scratch.is_local else Window(copy)
    return _OwnCopy(opens)


def _path(file: RowFile, part: str) -> str:
    return f"unpacked/{digest_of([file.uri, file.mtime_ns, part])}"


def _copy(source: BinaryIO, sink: BinaryIO) -> None:
    try:
        shutil.copyfileobj(source, sink, _CHUNK_BYTES)
    except PackedDataBroken:
        return  # rows behind the damage are missed when they are read


class _KeptCopy:
    """A copy in the run's folder."""

    def __init__(self, scratch: Storage, path: str) -> None:
        self._reader = RangeReader(scratch, max_open=1)
        self._path = path

    def read_at(self, length: int, offset: int) -> bytes:
        return self._reader.read(self._path, offset, length)

    def close(self) -> None:
        self._reader.close()


class _OwnCopy:
    """A copy that no other process sees, without a name, so that it goes with this process."""

    def __init__(self, opens: Opens) -> None:
        number, name = tempfile.mkstemp(prefix="shardmill-")
        self._descriptor: Descriptor | None = Descriptor(number)
        Path(name).unlink()
        with opens() as source, os.fdopen(os.dup(number), "wb") as sink:
            _copy(source, sink)

    def read_at(self, length: int, offset: int) -> bytes:
        assert self._descriptor is not None, "open"
        return os.pread(self._descriptor.fileno(), length, offset)

    def close(self) -> None:
        self._descriptor = None
