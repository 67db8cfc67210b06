"""Bytes of records from blocks that are read ahead: one read a block instead of one a record.

Neighbouring records of a shard are next to each other in its file, so a block is one range. The blocks of the
window in use are held in memory while those of the next window are read; records are cut out of them. A
record outside both windows (padding of a last step, a record out of sequence) is read by itself.

Nothing is read before the first record is asked for. So a cache above this reader saves reading the windows
too.
"""

from __future__ import annotations

import copy
import os
import threading
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shardmill.infra.storage.range_reader import RangeReader
from shardmill.training.arrays import Ints
from shardmill.training.order import Order
from shardmill.training.order.blocks import Blocks
from shardmill.training.reading.blocks.buffer import BlockBuffer
from shardmill.training.reading.budget import WindowMemory
from shardmill.training.reading.records.record_reader import RecordReader
from shardmill.training.reading.records.split_table import SplitTable
from shardmill.training.reading.shard_reader import ShardReader

# Steps under way besides the latest one: batches are made two at a time, in any sequence.
BLOCK_MARGIN_STEPS = 2


@dataclass(frozen=True, slots=True)
class BlockLookahead:
    """The windows of blocks that the steps of a run need. Windows are counted over all epochs.

    Attributes:
        order: the order of the run.
        blocks: the blocks of that order.
    """

    order: Order
    blocks: Blocks

    def windows(self, first: int, at: int, stop: int | None) -> range:
        """Return the windows to hold when the run is at a step: those in use, and the one after them.

        The next window is read when only the one before it is in use. So two windows are held at most, unless
        a few steps need more.

        Args:
            first: the step at which the run began; nothing is held for earlier steps.
            at: the latest step that was asked for (epoch * steps_per_epoch + step).
            stop: the step behind the last one; None: the run has no end.
        """
        begin = self._window(max(at - BLOCK_MARGIN_STEPS, first), last=False)
        end = self._window(at, last=True)
        ahead = max(end, begin + 1)
        if stop is not None and stop <= at + self.order.steps_per_epoch:
            ahead = max(end, min(ahead, self._window(max(stop - 1, at), last=True)))
        return range(begin, ahead + 1)

    def of_window(self, window: int) -> list[int]:
        """Return the blocks of a window, in stored order."""
        blocks: list[int] = self.blocks.of_window(*divmod(window, self.blocks.num_windows)).tolist()
        return blocks

    def _window(self, run_step: int, *, last: bool) -> int:
        """Return the window of a step's first or last record."""
        epoch, step = divmod(run_step, self.order.steps_per_epoch)
        start = step * self.order.global_batch_size
        stop = min(start + self.order.global_batch_size, self.order.num_records)
        position = stop - 1 if last else start
        return epoch * self.blocks.num_windows + self.blocks.window(epoch, position)


def window_bytes(order: Order, blocks: Blocks, num_bytes: Ints) -> int:
    """Return the most memory that the held windows take (bytes): two windows, or the windows of a few steps.

    Args:
        order: the order of the run.
        blocks: the blocks of that order.
        num_bytes: int64 [num_blocks], the size of each block.
    """
    smallest = int(np.sort(blocks.sizes)[: blocks.num_blocks // blocks.num_windows].sum())
    positions = (BLOCK_MARGIN_STEPS + 1) * order.global_batch_size
    num_windows = max(2, -(-(positions - 1) // smallest) + 1)
    most_blocks = num_windows * -(-blocks.num_blocks // blocks.num_windows)
    return int(np.sort(num_bytes)[-most_blocks:].sum())


def block_ranges(blocks: Blocks, table: SplitTable) -> tuple[Ints, Ints]:
    """Return (offset, length) of each block in its shard (bytes): int64 [num_blocks] each."""
    last = blocks.firsts + blocks.sizes - 1
    offsets = table.offset_bytes[blocks.firsts]
    return offsets, table.offset_bytes[last] + table.length_bytes[last] - offsets


def fits(blocks: Blocks, table: SplitTable) -> bool:
    """Return whether the blocks hold exactly the records of this split, each the records of one shard."""
    if blocks.sizes.sum() != len(table):
        return False
    last = blocks.firsts + blocks.sizes - 1
    return bool((table.shard[blocks.firsts] == table.shard[last]).all())


# A step up to this many steps behind the latest one is merely late: it reads the records that are no longer
# held one by one. A step from further back restarts the run there.
_LATE_STEPS = 64


class StoredBlocks:
    """Reads whole blocks in the sequence of an order (a ``StoredBytes``). Safe for many threads."""

    reads_single_records = False

    def __init__(
        self, table: SplitTable, ranges: RangeReader, lookahead: BlockLookahead, budget_bytes: int
    ) -> None:
        """Make a reader that holds no block yet.

        Args:
            table: the table of the split.
            ranges: reads from the dataset's storage.
            lookahead: which blocks the steps of the run need.
            budget_bytes: memory that the windows of all processes may take.

        Raises:
            ConfigError: the windows need more memory.
        """
        self._table = table
        self._ranges = ranges
        self._lookahead = lookahead
        self._places = block_ranges(lookahead.blocks, table)
        most = window_bytes(lookahead.order, lookahead.blocks, self._places[1])
        self.windows = WindowMemory(most, budget_bytes)
        self.windows.check(1)
        self._start()

    def _start(self) -> None:
        # Not a method: a reference from the buffer back to this object would keep the windows alive after it.
        read = partial(_read_block, self._ranges, self._table, self._lookahead.blocks, self._places)
        self._buffer = BlockBuffer(read)
        self._lock = threading.Lock()
        self._first = 0
        self._at: int | None = None
        self._stop: int | None = None
        self._held_at: int | None = None
        self._held_windows = range(0)
        _all_stored.add(self)

    @property
    def held_bytes(self) -> int:
        """The memory that the windows take now (bytes)."""
        return self._buffer.num_bytes

    # -- position of the run ------------------------------------------------------------------------------

    def prefetch(self, order: Order, start: int, stop: int) -> None:
        """See ``StoredBytes``: nothing is read ahead for steps from ``stop`` on."""
        with self._lock:
            self._at, self._held_at, self._stop = None, None, stop

    def advance(self, epoch: int, step: int) -> None:
        """See ``StoredBytes``."""
        if step < 0:
            return
        run_step = epoch * self._lookahead.order.steps_per_epoch + step
        with self._lock:
            if self._at is None or run_step < self._at - _LATE_STEPS:
                self._first = self._at = run_step
            else:
                self._first, self._at = min(self._first, run_step), max(self._at, run_step)

    def _hold_windows(self) -> None:
        """Hold the windows that the current step needs."""
        with self._lock:
            if self._at is None or self._at == self._held_at:
                return
            windows = self._lookahead.windows(self._first, self._at, self._stop)
            if windows != self._held_windows:
                self._buffer.hold(block for window in windows for block in self._lookahead.of_window(window))
            self._held_windows, self._held_at = windows, self._at

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, ordinal: int) -> bytes:
        """See ``StoredBytes``."""
        return self.read_batch(np.array([ordinal]))[0]

    def read_batch(self, ordinals: Ints) -> list[bytes]:
        """See ``StoredBytes``: the blocks of all records are looked up at once."""
        self._hold_windows()
        return [
            self._ranges.read(*self._table.place(ordinal)) if data is None else data
            for ordinal, data in zip(ordinals.tolist(), self._cut_out(ordinals), strict=True)
        ]

    def _cut_out(self, ordinals: Ints) -> list[bytes | None]:
        """Return the stored bytes of records; None for each whose block is not held."""
        blocks = self._lookahead.blocks.of_records(ordinals)
        begins = (self._table.offset_bytes[ordinals] - self._places[0][blocks]).tolist()
        lengths = self._table.length_bytes[ordinals].tolist()
        found = [self._buffer.get(block) for block in blocks.tolist()]
        return [
            None if data is None else data[begin : begin + length]
            for data, begin, length in zip(found, begins, lengths, strict=True)
        ]

    def read_range(self, path: str, offset_bytes: int, length_bytes: int) -> bytes:
        """See ``StoredBytes``."""
        return self._ranges.read(path, offset_bytes, length_bytes)

    def discard_damaged(self, ordinal: int) -> bool:
        """See ``StoredBytes``: there is no copy."""
        return False

    # -- processes and resources -----------------------------------------------------------------------

    def reopened(self) -> StoredBlocks:
        """See ``StoredBytes``: with windows of its own."""
        reopened = copy.copy(self)
        reopened._ranges = copy.copy(self._ranges)
        reopened._start()
        return reopened

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_buffer", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def close(self) -> None:
        """See ``StoredBytes``."""
        with self._lock:
            self._at = self._held_at = None
            self._held_windows = range(0)
        self._buffer.close()
        self._ranges.close()


def _read_block(
    ranges: RangeReader, table: SplitTable, blocks: Blocks, places: tuple[Ints, Ints], block: int
) -> bytes:
    path = table.paths[table.shard[blocks.firsts[block]]]
    offsets, lengths = places
    return ranges.read(path, int(offsets[block]), int(lengths[block]))


_all_stored: weakref.WeakSet[StoredBlocks] = weakref.WeakSet()


def _start_anew_after_fork() -> None:
    # The threads stay in the parent: a block that they were reading would never arrive.
    for stored in list(_all_stored):
        stored._start()


os.register_at_fork(after_in_child=_start_anew_after_fork)


def by_block(records: RecordReader, order: Order, budget_bytes: int) -> RecordReader:
    """Return a reader of whole blocks if the order is by block and this saves reads; otherwise ``records``.

    Args:
        records: reads the same records one by one.
        order: the order of the run.
        budget_bytes: memory that the windows may take.

    Raises:
        ConfigError: the windows need more memory.
    """
    blocks = order.blocks
    if blocks is None or not records.reads_single_records or not fits(blocks, records.table):
        return records
    ranges = RangeReader(records.split.version.storage)
    stored = StoredBlocks(records.table, ranges, BlockLookahead(order, blocks), budget_bytes)
    return ShardReader(records.split, stored)
