"""Compute which blocks the steps of an order by block need, and how much memory they take. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardmill.training.arrays import Ints
from shardmill.training.order import Order
from shardmill.training.order.blocks import Blocks
from shardmill.training.reading.records.split_table import SplitTable

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
