"""Blocks in memory, each read once: ahead of use by background threads, or by whoever needs one first."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from shardmill.infra.errors import ShardmillError

# Several, since an object store takes long to answer and a disk does better when it knows of several reads.
_READING_THREADS = 4

_Read = Future[bytes | None]


class BlockBuffer:
    """Holds the blocks that are needed now. Safe for many threads.

    The background threads end when every block has been read; the next call of ``hold`` starts new ones.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """Make an empty buffer.

        Args:
            read: reads a block by its number. If it fails, the block is not held.
        """
        self._read = read
        self._held: dict[int, _Read] = {}
        self._waiting: dict[int, _Read] = {}  # not begun yet, soonest needed first
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        _all_buffers.add(self)

    def hold(self, blocks: Iterable[int]) -> None:
        """Hold these blocks and no others. ``blocks``: soonest needed first."""
        with self._lock:
            begun = {block: read for block, read in self._held.items() if block not in self._waiting}
            self._held = {block: begun.get(block) or Future() for block in blocks}
            self._waiting = {block: read for block, read in self._held.items() if block not in begun}
            for _ in range(min(len(self._waiting), _READING_THREADS) - len(self._threads)):
                thread = threading.Thread(target=self._work, name="shardmill-blocks", daemon=True)
                self._threads.add(thread)
                thread.start()

    def get(self, block: int) -> bytes | None:
        """Return a block's bytes, waiting for them if need be; None if it is not held or cannot be read."""
        with self._lock:
            read = self._held.get(block)
            is_waiting = self._waiting.pop(block, None) is not None
        if read is None:
            return None
        if is_waiting:
            self._fill(block, read)
        return read.result()

    @property
    def num_bytes(self) -> int:
        """The size of all blocks that have been read (bytes)."""
        with self._lock:
            held = [read.result() for read in self._held.values() if read.done()]
        return sum(len(data) for data in held if data is not None)

    def close(self) -> None:
        """Release all blocks, and wait for the threads: each ends after the block that it is reading."""
        with self._lock:
            self._held, self._waiting = {}, {}
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        try:
            while True:
                with self._lock:
                    if not self._waiting:
                        self._threads.discard(threading.current_thread())
                        return
                    block = next(iter(self._waiting))
                    read = self._waiting.pop(block)
                self._fill(block, read)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _fill(self, block: int, read: _Read) -> None:
        data = None
        try:
            # Whoever needs a record of the block reads that record alone, and fails with an error that names
            # it.
            with contextlib.suppress(ShardmillError, OSError):
                data = self._read(block)
        finally:
            read.set_result(data)


_all_buffers: weakref.WeakSet[BlockBuffer] = weakref.WeakSet()


def _close_all() -> None:
    # Before the storage library cleans up, which would crash threads that still read.
    for buffer in list(_all_buffers):
        buffer.close()


atexit.register(_close_all)
