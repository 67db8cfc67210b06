"""The order by block: for storage where random reads are dear (see the package's docstring).

What reads whole blocks by it is ``training.reading.block_reader``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.arrays import Ints
from training.order.hashing import key_of
from training.order.permutation import permute
from training.order.recent import Recent

# Keep these permutations apart from those of .epochs and .class_draws.
_SEQUENCE, _WINDOW = 16, 17


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """How far records are mixed.

    Attributes:
        block_records: neighbouring records that are read together, at most.
        window_blocks: blocks that are mixed record by record, at most.
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
    """Which record comes at which position where blocks are mixed. About 30 bytes a block."""

    def __init__(self, shard_sizes: Ints, sizes: BlockSizes, seed: int) -> None:
        """``shard_sizes``: int64 [S], the records of each shard, by ordinal."""
        self._seed = seed
        self._starts, self._sizes = _cut(shard_sizes, sizes.block_records)
        num_windows = -(-self._starts.size // sizes.window_blocks)
        places = np.arange(num_windows + 1, dtype=np.int64)
        self._window_places = places * self._starts.size // num_windows
        self._epoch = Recent(self._make_epoch, kept=2)

    @property
    def num_blocks(self) -> int:
        """Blocks of an epoch."""
        return int(self._starts.size)

    @property
    def num_windows(self) -> int:
        """Windows of an epoch."""
        return int(self._window_places.size - 1)

    def ordinals(self, epoch: int, positions: Ints) -> Ints:
        """The records at ``positions`` (int64 [M]) of an epoch: int64 [M]."""
        of_epoch = self._epoch(epoch)
        window = np.searchsorted(of_epoch.windows, positions, side="right") - 1
        first = of_epoch.windows[window]
        size = of_epoch.windows[window + 1] - first
        mixed = first + permute(positions - first, size, key_of(_WINDOW, self._seed, epoch, window))
        place = np.searchsorted(of_epoch.ends, mixed, side="right")
        block = of_epoch.blocks[place]
        # Counted from the block's end, since its start is not kept.
        return self._starts[block] + self._sizes[block] - (of_epoch.ends[place] - mixed)

    def window(self, epoch: int, position: int) -> int:
        """The number of the window that ``position`` lies in, within the epoch."""
        return int(np.searchsorted(self._epoch(epoch).windows, position, side="right")) - 1

    def of_window(self, epoch: int, window: int) -> Ints:
        """int64 [m]: the blocks of a window, in stored order."""
        places = slice(self._window_places[window], self._window_places[window + 1])
        return np.sort(self._epoch(epoch).blocks[places])

    def of_records(self, ordinals: Ints) -> Ints:
        """The block of each record: int64 [M]."""
        return np.searchsorted(self._starts, ordinals, side="right") - 1

    @property
    def firsts(self) -> Ints:
        """int64 [num_blocks]: the first record of each block."""
        return self._starts

    @property
    def sizes(self) -> Ints:
        """int64 [num_blocks]: the records of each block."""
        return self._sizes

    def _make_epoch(self, epoch: int) -> _Epoch:
        places = np.arange(self.num_blocks, dtype=np.int64)
        blocks = permute(places, self.num_blocks, key_of(_SEQUENCE, self._seed, epoch))
        ends = np.cumsum(self._sizes[blocks])
        windows = np.concatenate([[0], ends[self._window_places[1:] - 1]])
        return _Epoch(blocks, ends, windows)


def _cut(shard_sizes: Ints, block_records: int) -> tuple[Ints, Ints]:
    """(first ordinal, records) of every block: each shard is cut evenly into as few blocks as do."""
    num_blocks = -(-shard_sizes // block_records)
    shard = np.repeat(np.arange(shard_sizes.size), num_blocks)
    in_shard = np.arange(shard.size) - (np.cumsum(num_blocks) - num_blocks)[shard]
    of_shard, records = num_blocks[shard], shard_sizes[shard]
    start, stop = in_shard * records // of_shard, (in_shard + 1) * records // of_shard
    first = (np.cumsum(shard_sizes) - shard_sizes)[shard]
    return first + start, stop - start
