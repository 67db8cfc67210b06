"""A note of the file that a process is processing, in a small file that both sides map into memory.

The pool reads it when the process is dead, and while it runs it reads since when the file is being processed.
Layout::

    float64   since when (time.monotonic, one clock for all processes); 0 while there is none
    uint32    length of what follows (bytes)
    ...       the file as JSON

The time is written last and cleared first. A file costs a few microseconds and no system call.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import struct
import time
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

from beam_jobs.schemas import FileRef

_NOTE_BYTES = 1 << 16  # a path as long as a system allows, each byte written as \\xNN
_SINCE = struct.Struct("<d")
_LENGTH = struct.Struct("<I")
_HEADER_BYTES = _SINCE.size + _LENGTH.size


class Note:
    """The note of one process, mapped into memory."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as stream:
            self._memory = mmap.mmap(stream.fileno(), _NOTE_BYTES)

    @classmethod
    def create(cls, path: Path) -> Note:
        """Create the note; the process opens it afterwards."""
        path.write_bytes(bytes(_NOTE_BYTES))  # all of it: a full disk shows here, not as SIGBUS
        return cls(path)

    def begin(self, file: FileRef) -> None:
        """Note that the file is being processed."""
        text = json.dumps(astuple(file)).encode("ascii")[: _NOTE_BYTES - _HEADER_BYTES]
        _LENGTH.pack_into(self._memory, _SINCE.size, len(text))
        self._memory[_HEADER_BYTES : _HEADER_BYTES + len(text)] = text
        _SINCE.pack_into(self._memory, 0, time.monotonic())

    def end(self) -> None:
        """Note that no file is being processed."""
        _SINCE.pack_into(self._memory, 0, 0.0)

    def since(self) -> float | None:
        """Return when processing of the file began (seconds of time.monotonic); None while there is none."""
        (since,) = _SINCE.unpack_from(self._memory, 0)
        return since or None

    def file(self) -> FileRef | None:
        """Return the noted file. Only safe when the process is dead, since it would write meanwhile."""
        if self.since() is None:
            return None
        (length,) = _LENGTH.unpack_from(self._memory, _SINCE.size)
        return FileRef(*json.loads(self._memory[_HEADER_BYTES : _HEADER_BYTES + length]))


_own: Note | None = None


def open_own_note(path: Path) -> None:
    """Note the files of this process at this path from now on."""
    global _own
    _own = Note(path)


@contextlib.contextmanager
def being_processed(file: FileRef) -> Iterator[None]:
    """Note during this block that the file is being processed; does nothing in a process that has no note."""
    if _own is None:
        yield
        return
    _own.begin(file)
    try:
        yield
    except Exception:
        _own.end()
        raise
    # The note stays if a library ends the process (SystemExit).
    _own.end()
