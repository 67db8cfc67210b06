"""Blocks in memory: read ahead by threads of the background, or by whoever needs one first. Each once."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from infra.errors import ShardmillError

# Several, since an object store takes long to answer and a disk does better when it knows of several reads.
_READING_THREADS = 4

_Held = Future[bytes | None]


class HeldBlocks:
    """The blocks that are wanted now. Safe for many threads.

    The threads of the background end when all that is wanted has been read; the next wish starts others.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """``read``: what reads a block. Where it fails, the block is not held."""
        self._read = read
        self._held: dict[int, _Held] = {}
        self._waiting: dict[int, _Held] = {}  # not begun yet, soonest needed first
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        _all_held.add(self)

    def want(self, blocks: Iterable[int]) -> None:
        """Hold these, soonest needed first, and no others."""
        with self._lock:
            begun = {block: found for block, found in self._held.items() if block not in self._waiting}
            self._held = {block: begun.get(block) or Future() for block in blocks}
            self._waiting = {block: found for block, found in self._held.items() if block not in begun}
            for _ in range(min(len(self._waiting), _READING_THREADS) - len(self._threads)):
                thread = threading.Thread(target=self._work, name="shardmill-blocks", daemon=True)
                self._threads.add(thread)
                thread.start()

    def get(self, block: int) -> bytes | None:
        """A block's bytes, waited for if need be; None where it is not wanted, or could not be read."""
        with self._lock:
            found = self._held.get(block)
            is_mine = self._waiting.pop(block, None) is not None
        if found is None:
            return None
        if is_mine:
            self._fill(block, found)
        return found.result()

    @property
    def num_bytes(self) -> int:
        """What is held now."""
        with self._lock:
            held = [found.result() for found in self._held.values() if found.done()]
        return sum(len(data) for data in held if data is not None)

    def close(self) -> None:
        """Let go of all blocks, and end the threads; one that reads ends when it has."""
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
                    found = self._waiting.pop(block)
                self._fill(block, found)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _fill(self, block: int, found: _Held) -> None:
        data = None
        try:
            # Whoever needs a record of it reads that alone, and fails with an error that names it.
            with contextlib.suppress(ShardmillError, OSError):
                data = self._read(block)
        finally:
            found.set_result(data)


_all_held: weakref.WeakSet[HeldBlocks] = weakref.WeakSet()


def _close_all() -> None:
    # Before the storage library's own clean-up, which threads in its midst would not survive.
    for held in list(_all_held):
        held.close()


atexit.register(_close_all)
