"""The journal: which images are in work, known to the parent even when the process that did it is dead.

An anonymous file in memory that parent and child share, without a name and so without anything to clean up.
Each block in work has a slot of it, mapped into the process that works on it::

    float64   since when (time.monotonic, one clock for all processes), 0 while no image is in work
    int64     size of the file (bytes)
    int64     its time of change (ns)
    uint32    length of the source's URI, and
    uint32    of the file's (bytes); both follow

The time is written last and cleared first. Entering an image costs microseconds: no call of the system, and
the GIL is never let go.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

JOURNAL_FD = "SHARDMILL_JOURNAL_FD"

_SLOT_BYTES = 1 << 16  # two paths as long as a system allows, each byte written as \xNN
_SINCE = struct.Struct("<d")
_FILE = struct.Struct("<qqII")
_HEADER_BYTES = _SINCE.size + _FILE.size
_IDLE = 0.0
_ONE_AT = 1 << 40  # a place in the file that is only ever locked

_one = threading.Lock()


@dataclass(frozen=True, slots=True)
class Suspect:
    """A file that was in work when something went wrong.

    Attributes:
        source: URI of the source.
        uri: of the file, relative to the source.
        size_bytes, mtime_ns: of the file when it was listed.
        since: when work on it began (seconds of time.monotonic).
    """

    source: str
    uri: str
    size_bytes: int
    mtime_ns: int
    since: float


class Journal:
    """The parent's side: made before the child starts, read at any time."""

    def __init__(self) -> None:
        self.fd = anonymous_file("shardmill-journal")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)

    @property
    def env(self) -> dict[str, str]:
        """Variables by which the child finds it."""
        return {JOURNAL_FD: str(self.fd)}

    def in_work(self) -> list[Suspect]:
        """The images in work now, or when the child died; the longest in work first."""
        num_slots = os.fstat(self.fd).st_size // _SLOT_BYTES
        found = [self._read(number * _SLOT_BYTES) for number in range(num_slots)]
        return sorted((one for one in found if one is not None), key=lambda one: (one.since, one.uri))

    def _read(self, offset: int) -> Suspect | None:
        slot = os.pread(self.fd, _SLOT_BYTES, offset)
        (since,) = _SINCE.unpack_from(slot)
        if since == _IDLE or os.pread(self.fd, _SINCE.size, offset) != slot[: _SINCE.size]:
            return None  # no image, or another one by the time that it was read
        size_bytes, mtime_ns, source_bytes, uri_bytes = _FILE.unpack_from(slot, _SINCE.size)
        middle = _HEADER_BYTES + source_bytes
        source, uri = slot[_HEADER_BYTES:middle], slot[middle : middle + uri_bytes]
        return Suspect(source.decode(), uri.decode(), size_bytes, mtime_ns, since)


class Slot:
    """The child's side: what one thread is working on."""

    def __init__(self, slot: mmap.mmap | None, source: str) -> None:
        self._slot = slot
        self._source = source.encode()

    def begin(self, uri: str, size_bytes: int, mtime_ns: int) -> None:
        """From here on the file is in work."""
        slot = self._slot
        if slot is None:
            return
        names = self._source + uri.encode()
        end = _HEADER_BYTES + len(names)
        if end > _SLOT_BYTES:
            return
        source_bytes = len(self._source)
        _FILE.pack_into(slot, _SINCE.size, size_bytes, mtime_ns, source_bytes, len(names) - source_bytes)
        slot[_HEADER_BYTES:end] = names
        _SINCE.pack_into(slot, 0, time.monotonic())

    def end(self) -> None:
        """It no longer is."""
        if self._slot is not None:
            _SINCE.pack_into(self._slot, 0, _IDLE)


class _Slots:
    """The slots of this process: taken for a block, given back and used again."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._free: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def take(self) -> mmap.mmap:
        with self._lock:
            return self._free.pop() if self._free else self._new()

    def _new(self) -> mmap.mmap:
        """A slot at the end of the journal, which the processes of a pool lengthen in turn."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX, _SLOT_BYTES)
        try:
            # Up to a whole slot: memory may have run out in the middle of one.
            offset = -(-os.fstat(self.fd).st_size // _SLOT_BYTES) * _SLOT_BYTES
            # Written, not only lengthened: a page that the system could not provide later would be a SIGBUS.
            os.pwrite(self.fd, bytes(_SLOT_BYTES), offset)
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, _SLOT_BYTES)
        return mmap.mmap(self.fd, _SLOT_BYTES, offset=offset)

    def give_back(self, slot: mmap.mmap) -> None:
        with self._lock:
            self._free.append(slot)


_slots: _Slots | None = None


def adopt_journal() -> None:
    """Take over the journal that a parent left in the environment; without one, nothing is noted."""
    global _slots
    descriptor = os.environ.pop(JOURNAL_FD, None)
    if descriptor is not None:
        os.set_inheritable(int(descriptor), False)
        _slots = _Slots(int(descriptor))


@contextlib.contextmanager
def open_slot(source: str) -> Iterator[Slot]:
    """A slot for the files of a source, for one thread."""
    slots = _slots
    if slots is None:
        yield Slot(None, source)
        return
    taken = slots.take()
    slot = Slot(taken, source)
    try:
        yield slot
    finally:
        slot.end()
        slots.give_back(taken)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """What only one thread may do, of all processes that share the journal."""
    with _one:
        if _slots is None:
            yield
            return
        fcntl.lockf(_slots.fd, fcntl.LOCK_EX, 1, _ONE_AT)
        try:
            yield
        finally:
            fcntl.lockf(_slots.fd, fcntl.LOCK_UN, 1, _ONE_AT)


def anonymous_file(name: str) -> int:
    """Descriptor of a file that is nowhere in the tree and goes with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as stream:
        return os.dup(stream.fileno())
