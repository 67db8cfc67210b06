"""The order by block: for storage with slow random reads (see the package's docstring).

What reads whole blocks by it is ``shardmill.training.reading.blocks.reader``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardmill.training.arrays import Ints
from shardmill.training.draws import Purpose, key_of
from shardmill.training.order.permutation import permute
from shardmill.training.order.recent_values import RecentValues


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """The sizes that limit how far records are mixed.

    Attributes:
        block_records: the most neighbouring records that are read together.
        window_blocks: the most blocks whose records are mixed.
    """

    block_records: int = 32
    window_blocks: int = 256


@dataclass(frozen=True, slots=True)
class _Epoch:
    """The blocks of one epoch in their sequence.

    Attributes:
        blocks: int64 [M], the block at each place.
        ends: int64 [M], positions up to and with each place.
        windows: int64 [V + 1], the first position of each window; the last is N.
    """

    blocks: Ints
    ends: Ints
    windows: Ints


class Blocks:
    """Maps positions to records in the order by block. Takes about 30 bytes a block."""

    def __init__(self, shard_sizes: Ints, sizes: BlockSizes, seed: int) -> None:
        """Divide the shards into blocks. ``shard_sizes``: int64 [S], the records of each shard."""
        self._seed = seed
        self._starts, self._sizes = _cut(shard_sizes, sizes.block_records)
        num_windows = -(-self._starts.size // sizes.window_blocks)
        places = np.arange(num_windows + 1, dtype=np.int64)
        self._window_places = places * self._starts.size // num_windows
        self._epoch = RecentValues(self._make_epoch, kept=2)

    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return int(self._starts.size)

    @property
    def num_windows(self) -> int:
        """The number of windows of an epoch."""
        return int(self._window_places.size - 1)

    def ordinals(self, epoch: int, positions: Ints) -> Ints:
        """Return the records at ``positions`` (int64 [M]) of an epoch: int64 [M]."""
        of_epoch = self._epoch(epoch)
        window = np.searchsorted(of_epoch.windows, positions, side="right") - 1
        first = of_epoch.windows[window]
        size = of_epoch.windows[window + 1] - first
        mixed = first + permute(
            positions - first, size, key_of(Purpose.BLOCK_WINDOW, self._seed, epoch, window)
        )
        place = np.searchsorted(of_epoch.ends, mixed, side="right")
        block = of_epoch.blocks[place]
        # Counted from the block's end, since its start is not kept.
        return self._starts[block] + self._sizes[block] - (of_epoch.ends[place] - mixed)

    def window(self, epoch: int, position: int) -> int:
        """Return the number of the window that holds ``position``, counted within the epoch."""
        return int(np.searchsorted(self._epoch(epoch).windows, position, side="right")) - 1

    def of_window(self, epoch: int, window: int) -> Ints:
        """Return the blocks of a window, in stored order: int64 [m]."""
        places = slice(self._window_places[window], self._window_places[window + 1])
        return np.sort(self._epoch(epoch).blocks[places])

    def of_records(self, ordinals: Ints) -> Ints:
        """Return the block of each record: int64 [M]."""
        return np.searchsorted(self._starts, ordinals, side="right") - 1

    @property
    def firsts(self) -> Ints:
        """The first record of each block: int64 [num_blocks]."""
        return self._starts

    @property
    def sizes(self) -> Ints:
        """The number of records of each block: int64 [num_blocks]."""
        return self._sizes

    def _make_epoch(self, epoch: int) -> _Epoch:
        places = np.arange(self.num_blocks, dtype=np.int64)
        blocks = permute(places, self.num_blocks, key_of(Purpose.BLOCK_SEQUENCE, self._seed, epoch))
        ends = np.cumsum(self._sizes[blocks])
        windows = np.concatenate([[0], ends[self._window_places[1:] - 1]])
        return _Epoch(blocks, ends, windows)


def _cut(shard_sizes: Ints, block_records: int) -> tuple[Ints, Ints]:
    """Divide each shard evenly into as few blocks as possible.

    Return (first ordinal, records) of every block.
    """
    num_blocks = -(-shard_sizes // block_records)
    shard = np.repeat(np.arange(shard_sizes.size), num_blocks)
    in_shard = np.arange(shard.size) - (np.cumsum(num_blocks) - num_blocks)[shard]
    of_shard, records = num_blocks[shard], shard_sizes[shard]
    start, stop = in_shard * records // of_shard, (in_shard + 1) * records // of_shard
    first = (np.cumsum(shard_sizes) - shard_sizes)[shard]
    return first + start, stop - start
