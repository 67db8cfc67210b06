"""Divide ``reading.ram_budget_bytes`` among shuffle buffer, cache, windows and ``tf.data``."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import ConfigError

DEFAULT_SHUFFLE_EXAMPLES = 10_000
# What an example in a shuffle buffer takes besides its bytes: tensors, and the rounding of their allocator.
_EXAMPLE_OVERHEAD_BYTES = 1 << 9
# Batches of whole images that are in memory at a time: the caller's, and those that are made ahead.
WHOLE_BATCHES = 4

Ints32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RamBudget:
    """The parts of a memory budget (bytes).

    Attributes:
        total: all that reading may take.
        shuffle: the shuffle buffer.
        cache: a cache in memory.
        windows: the windows of an order by block.
    """

    total: int
    shuffle: int = 0
    cache: int = 0
    windows: int = 0

    @property
    def taken(self) -> int:
        """The parts with a fixed size."""
        return self.shuffle + self.cache + self.windows

    @property
    def tuned(self) -> int:
        """The rest, which ``tf.data`` divides among parallel calls and prefetching."""
        return self.total - self.taken

    def check(self, batch_bytes: int) -> None:
        """Check that two batches fit into the rest: the one in use and the next.

        Raises:
            ConfigError: they do not.
        """
        if self.tuned < 2 * batch_bytes:
            raise ConfigError(
                f"reading.ram_budget_bytes = {self.total:,}: the shuffle buffer takes {self.shuffle:,}, "
                f"the cache {self.cache:,}, the windows of an order by block {self.windows:,}, "
                f"and two batches need {2 * batch_bytes:,}",
                f"set it to at least {self.taken + 2 * batch_bytes}, or lower reading.shuffle_buffer, "
                "reading.cache_bytes or data.window_blocks",
            )


def check_whole_images(
    heights: Ints32, widths: Ints32, rows: int, budget_bytes: int, pixel_bytes: int = 3
) -> None:
    """Check that batches of whole images fit into memory, however large the images of a batch are.

    Args:
        heights: heights of all images of the split, int32 [N] (pixels).
        widths: widths of all images of the split, int32 [N] (pixels).
        rows: images of a batch.
        budget_bytes: the most that the batches under way may take.
        pixel_bytes: the size of a pixel (bytes).

    Raises:
        ConfigError: they need more.
    """
    height, width = int(heights.max(initial=0)), int(widths.max(initial=0))
    needed = WHOLE_BATCHES * rows * height * width * pixel_bytes
    if needed > budget_bytes:
        raise ConfigError(
            f"{WHOLE_BATCHES} batches of {rows} whole images of up to {height} x {width} pixels take up to "
            f"{needed:,} bytes of memory, and may take {budget_bytes:,} (ram_budget_bytes)",
            "give an image_size, lower batch_size, or raise ram_budget_bytes of open_dataset",
        )


@dataclass(frozen=True, slots=True)
class WindowMemory:
    """Memory for records that are read ahead in windows. Each process that reads has windows of its own.

    Attributes:
        num_bytes: the most that the windows of one process take; 0: there are none.
        budget_bytes: the most that the windows of all processes may take.
    """

    num_bytes: int = 0
    budget_bytes: int = 0

    @property
    def most_processes(self) -> int:
        """The number of processes that may read at a time."""
        return self.budget_bytes // self.num_bytes if self.num_bytes else sys.maxsize

    def check(self, num_processes: int) -> None:
        """Check that so many processes may read at a time.

        Raises:
            ConfigError: their windows need more than the budget.
        """
        if num_processes <= self.most_processes:
            return
        readers = f" of {num_processes} processes" if num_processes > 1 else ""
        fewer = "have fewer processes (num_workers), " if num_processes > 1 else ""
        raise ConfigError(
            f"the windows of an order by block{readers} take up to {num_processes * self.num_bytes:,} "
            f"bytes of memory, and may take {self.budget_bytes:,} (reading.ram_budget_bytes)",
            f"{fewer}lower data.window_blocks or data.block_records, or raise reading.ram_budget_bytes; "
            "shards of an object store may be staged instead (reading.staging_dir)",
        )


def shuffle_examples(asked: int | None, ram_budget_bytes: int, mean_example_bytes: float) -> int:
    """Return the number of examples in the shuffle buffer.

    Args:
        asked: the configured number; None: as many as a quarter of the budget holds, at most 10,000.
        ram_budget_bytes: all that reading may take.
        mean_example_bytes: mean size of an example.
    """
    if asked is not None:
        return asked
    room = ram_budget_bytes // 4 / (mean_example_bytes + _EXAMPLE_OVERHEAD_BYTES)
    return max(min(DEFAULT_SHUFFLE_EXAMPLES, int(room)), 1)


def shuffle_bytes(examples: int, mean_example_bytes: float) -> int:
    """Return the memory of a full shuffle buffer (bytes)."""
    return int(examples * (mean_example_bytes + _EXAMPLE_OVERHEAD_BYTES))
