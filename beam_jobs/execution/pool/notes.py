"""Notes of what a process is doing, in a small file that the process and its pool map into memory.

The pool reads from it how many files of an item are done, and since when the next one is being processed.
Layout::

    uint64    number of the item that is being done, plus 1, in the upper half; files of it done, in the lower
    float64   since when (time.monotonic, one clock for all processes); 0 while there is none

The first field is written as one aligned word, so a reader never sees half of it. A file costs about a
microsecond and no system call.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_SINCE = struct.Struct("<d")
_SINCE_AT = 8
_NEVER_SECONDS = 1e9  # ahead of now
_NOTE_BYTES = _SINCE_AT + _SINCE.size


class Note:
    """The notes of one process, mapped into memory."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as stream:
            self._memory = mmap.mmap(stream.fileno(), _NOTE_BYTES)
        self._progress = memoryview(self._memory)[:_SINCE_AT].cast("Q")

    @classmethod
    def create(cls, path: Path) -> Note:
        """Create an empty note; processes open it afterwards, one at a time."""
        path.write_bytes(bytes(_NOTE_BYTES))  # all of it: a full disk shows here, not as SIGBUS
        return cls(path)

    def begin_item(self, item: int) -> None:
        """Note that an item of the task is being done, and no file of it is done yet."""
        self._progress[0] = (item + 1) << 32

    def add_file(self) -> None:
        """Note that another file of the item is done."""
        self._progress[0] += 1

    def files_done(self) -> tuple[int, int] | None:
        """Return the item that is being done, or was done last, and how many files of it are done."""
        item, files = divmod(self._progress[0], 1 << 32)
        return (item - 1, files) if item else None

    def begin(self, *, is_timed: bool = True) -> None:
        """Note that the next file of the item is being processed; without a limit of time if so said."""
        _SINCE.pack_into(self._memory, _SINCE_AT, time.monotonic() + (0.0 if is_timed else _NEVER_SECONDS))

    def end(self) -> None:
        """Note that no file is being processed."""
        _SINCE.pack_into(self._memory, _SINCE_AT, 0.0)

    def since(self) -> float | None:
        """Return when processing of the file began (seconds of time.monotonic); None while there is none."""
        (since,) = _SINCE.unpack_from(self._memory, _SINCE_AT)
        return since or None

    def in_progress(self) -> tuple[int, int] | None:
        """Return the item, and the number in it of the file that is being processed; None without one."""
        return None if self.since() is None else self.files_done()


_own: Note | None = None


def open_own_note(path: Path) -> Note:
    """Note the files of this process at this path from now on."""
    global _own
    _own = Note(path)
    return _own


def counting_files(files: Iterable[T]) -> Iterator[T]:
    """Yield the files of an item, and note each as done when the next one is asked for."""
    for file in files:
        yield file
        if _own is not None:
            _own.add_file()


@contextlib.contextmanager
def being_processed(*, is_timed: bool = True) -> Iterator[None]:
    """Note during this block that the file that ``counting_files`` yielded last is being processed.

    Does nothing in a process that has no note.

    Args:
        is_timed: whether the limit of time applies.
    """
    if _own is None:
        yield
        return
    _own.begin(is_timed=is_timed)
    try:
        yield
    except Exception:
        _own.end()
        raise
    # The note stays if a library ends the process (SystemExit).
    _own.end()
