"""Shares of memory: all large images that the processes of a machine decode at a time fit into one budget.

The budget is cut into units, each a byte of a file that all pools of a user on this machine open. A process
holds a unit by the kernel's lock on its byte (``fcntl``), so a share ends with its process, whatever ends it.
One process at a time, which holds the lock on byte 0, collects units until it has enough; the others queue
behind it, so smaller images do not overtake a large one for ever. There is no deadlock: whoever holds a share
waits for nothing. An image that needs more than the budget takes all units, and is decoded alone.

Images that need little memory take no share: so the processes hold at most the budget, and ``SMALL_BYTES``
each. Containers without a common folder of temporary files, and users, do not share a budget.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardmill.infra.processes.trees import free_memory_bytes
from shardmill.infra.progress import log

SMALL_BYTES = 64 << 20  # an image that needs no more takes no share
UNIT_BYTES = 32 << 20
_PART_OF_FREE_MEMORY = 2  # a half, as for planning
_WAIT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Memory that the images of all processes may take together.

    Attributes:
        path: the file whose bytes stand for units of memory; all that name it share the memory.
        units: number of units of UNIT_BYTES, at least 1.
    """

    path: Path
    units: int

    @classmethod
    def of_machine(cls) -> MemoryBudget:
        """Half of the memory that is free on this machine, or in this container."""
        units = free_memory_bytes() // (_PART_OF_FREE_MEMORY * UNIT_BYTES)
        return cls(Path(tempfile.gettempdir(), f"shardmill-memory-{os.getuid()}"), max(1, units))


class _Shares:
    """The budget as this process sees it. It holds at most one share at a time."""

    def __init__(self, path: Path) -> None:
        self.units = 1
        self.path = path
        # Never closed: the kernel would drop the locks that this process has by another opening of the file.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._lock(1, fcntl.LOCK_NB)  # raises an error where files have no locks
        self._unlock(1, 1)

    def take(self, needed_bytes: int) -> None:
        """Wait until there is memory for an image, and hold it."""
        wanted = min(self.units, -(-needed_bytes // UNIT_BYTES))
        self._lock(0)
        held: set[int] = set()
        while True:
            for unit in range(1, self.units + 1):
                if len(held) < wanted and unit not in held and self._lock(unit, fcntl.LOCK_NB):
                    held.add(unit)
            if len(held) == wanted:
                self._unlock(0, 1)
                return
            time.sleep(_WAIT_SECONDS)

    def release(self) -> None:
        """Give back what was taken."""
        self._unlock(1, 0)

    def _lock(self, byte: int, flags: int = 0) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | flags, 1, byte)
        except (BlockingIOError, PermissionError):  # the systems differ in how they say that it is held
            return False
        return True

    def _unlock(self, byte: int, length: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, length, byte)


_own: _Shares | None = None


def open_budget(budget: MemoryBudget) -> None:
    """Take shares of this budget from now on, in this process."""
    global _own
    try:
        if _own is None or _own.path != budget.path:
            _own = _Shares(budget.path)
        _own.units = budget.units
    except OSError as error:
        _own = None
        log(f"large images are decoded without a common limit of memory: {error}", level="warning")


@contextlib.contextmanager
def memory_for(needed_bytes: int) -> Iterator[None]:
    """Wait for memory for an image, and hold it during this block; does nothing without a budget."""
    if _own is None or needed_bytes <= SMALL_BYTES:
        yield
        return
    _own.take(needed_bytes)
    try:
        yield
    finally:
        _own.release()
