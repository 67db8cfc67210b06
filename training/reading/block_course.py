"""Which blocks the steps of an order by block need, and what they take of memory. Pure; nothing is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.arrays import Ints
from training.order import TrainingOrder
from training.order.blocks import Blocks
from training.reading.table import SplitTable

# Steps under way besides the one that was asked for last: batches are made two at a time, in any sequence.
MARGIN_STEPS = 2


@dataclass(frozen=True, slots=True)
class BlockCourse:
    """The windows of a run, counted over all epochs, as its steps need them.

    Attributes:
        order: of the run.
        blocks: the same order's.
    """

    order: TrainingOrder
    blocks: Blocks

    def windows(self, first: int, at: int, stop: int | None) -> range:
        """The windows to hold when the run is at a step: those in use, and the one after them.

        A window is read ahead when only the one before it is in use: so at most two are held, but where a few
        steps need more.

        Args:
            first: the step at which the run began; nothing is held for the sake of earlier ones.
            at: the latest step that was asked for (epoch * steps_per_epoch + step).
            stop: the step behind the last one; None: the run has no end.
        """
        begin = self._window(max(at - MARGIN_STEPS, first), last=False)
        end = self._window(at, last=True)
        ahead = max(end, begin + 1)
        if stop is not None and stop <= at + self.order.steps_per_epoch:
            ahead = max(end, min(ahead, self._window(max(stop - 1, at), last=True)))
        return range(begin, ahead + 1)

    def of_window(self, window: int) -> Ints:
        """int64 [m]: the blocks of a window, in stored order."""
        return self.blocks.of_window(*divmod(window, self.blocks.num_windows))

    def _window(self, run_step: int, *, last: bool) -> int:
        """The window of a step's first or last record."""
        epoch, step = divmod(run_step, self.order.steps_per_epoch)
        start = step * self.order.global_batch_size
        stop = min(start + self.order.global_batch_size, self.order.num_records)
        position = stop - 1 if last else start
        return epoch * self.blocks.num_windows + self.blocks.window(epoch, position)


def window_bytes(order: TrainingOrder, blocks: Blocks, num_bytes: Ints) -> int:
    """Most that the windows take which are held at a time (bytes): two, or what a few steps need.

    Args:
        order: of the run.
        blocks: the same order's.
        num_bytes: int64 [num_blocks], of each block.
    """
    smallest = int(np.sort(blocks.sizes)[: blocks.num_blocks // blocks.num_windows].sum())
    positions = (MARGIN_STEPS + 1) * order.global_batch_size
    num_windows = max(2, -(-(positions - 1) // smallest) + 1)
    most_blocks = num_windows * -(-blocks.num_blocks // blocks.num_windows)
    return int(np.sort(num_bytes)[-most_blocks:].sum())


def block_ranges(blocks: Blocks, table: SplitTable) -> tuple[Ints, Ints]:
    """(offset, length) of each block in its shard (bytes): int64 [num_blocks] each."""
    last = blocks.firsts + blocks.sizes - 1
    offsets = table.offset_bytes[blocks.firsts]
    return offsets, table.offset_bytes[last] + table.length_bytes[last] - offsets


def fits(blocks: Blocks, table: SplitTable) -> bool:
    """Whether the blocks are of this split, and each lies in one shard."""
    if blocks.sizes.sum() != len(table):
        return False
    last = blocks.firsts + blocks.sizes - 1
    return bool((table.shard[blocks.firsts] == table.shard[last]).all())
