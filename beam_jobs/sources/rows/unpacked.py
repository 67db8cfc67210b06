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
from typing import BinaryIO, Literal

from isal import isal_zlib

from shardmill.beam_jobs.sources.files.container import Ranges, Window
from shardmill.beam_jobs.sources.rows.row_files import RowFile
from shardmill.infra.digests import digest_of
from shardmill.infra.format.records import IsalError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import Descriptor, RangeReader

_INFLATED_BYTES = 1 << 18
_WINDOW_BITS = {"gzip": 31, "zlib": 15}


class Inflated:
    """The start of inflated data. Members that follow each other are one stream.

    Args:
        stream: the compressed data.
        kind: how it is compressed.
    """

    def __init__(self, stream: BinaryIO, kind: Literal["gzip", "zlib"]) -> None:
        self._stream = stream
        self._bits = _WINDOW_BITS[kind]
        self._inflater = isal_zlib.decompressobj(wbits=self._bits)
        self._has_begun = False  # the current member
        self._input = b""
        self._ready = bytearray()
        self._damage: str | None = None
        self._has_ended = False

    def read(self, length: int = -1) -> bytes:
        """Return ``length`` bytes, or all; fewer only at the end or in front of a damage.

        Raises:
            PackedDataBroken: all in front of the damage was returned before.
        """
        while (length < 0 or len(self._ready) < length) and not self._has_ended and self._damage is None:
            self._fill()
        if self._damage is not None and not self._ready and length:
            raise PackedDataBroken(self._damage)
        taken = len(self._ready) if length < 0 else length
        data = bytes(self._ready[:taken])
        del self._ready[:taken]
        return data

    def _fill(self) -> None:
        """Inflate the next piece."""
        if not self._input:
            self._input = self._stream.read(_INFLATED_BYTES)
            if not self._input:
                self._has_ended = True
                if self._has_begun:
                    self._damage = "the compressed data ends early"
                return
        try:
            self._has_begun = True
            self._ready += self._inflater.decompress(self._input)
        except IsalError as error:
            self._damage = f"the compressed data is damaged: {error}"
            return
        self._input = b""
        if self._inflater.eof:
            # Zeros after a member are padding.
            self._input = self._inflater.unused_data.lstrip(b"\0")
            self._inflater = isal_zlib.decompressobj(wbits=self._bits)
            self._has_begun = False


_CHUNK_BYTES = 1 << 20

Opens = Callable[[], AbstractContextManager[BinaryIO]]  # opens what a file unpacks to, from its start


class PackedDataBroken(Exception):
    """Compressed data ends early or is damaged. Everything before was read."""


def keep_unpacked(file: RowFile, part: str, opens: Opens, scratch: Storage) -> None:
    """Unpack a file to the run's folder, as far as it is whole, unless a copy is there.

    Args:
        file: the compressed file.
        part: what of the file is unpacked, such as a member; "" for all of it.
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
