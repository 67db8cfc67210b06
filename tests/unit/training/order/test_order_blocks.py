"""The order by block: what lies in a window, how reads are spared, how well it mixes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError, DataError
from shardmill.training.order import BlockSizes, TrainingOrder
from shardmill.training.order.balance.rules import uniform
from shardmill.training.order.blocks import Blocks
from tests.samples.datasets.orders import SEEDS, epoch_of, shard_sizes


def windows_of(blocks: Blocks, epoch: int) -> list[tuple[int, int]]:
    """The positions (start, stop) of each window, by the blocks in it."""
    sizes = [blocks.sizes[blocks.of_window(epoch, window)].sum() for window in range(blocks.num_windows)]
    ends = np.cumsum([0, *sizes]).tolist()
    return [*itertools.pairwise(ends)]


@given(SEEDS, st.integers(1, 300), st.integers(1, 40), st.integers(1, 20), st.integers(0, 9), st.data())
@settings(deadline=None)
def test_each_record_once_window_by_window(
    seed: int, num_records: int, block: int, window: int, epoch: int, data: st.DataObject
) -> None:
    shards = data.draw(shard_sizes(num_records))
    blocks = Blocks(shards, BlockSizes(block, window), seed)
    found = blocks.ordinals(epoch, np.arange(num_records))
    assert sorted(found.tolist()) == list(range(num_records))
    assert blocks.num_blocks == sum(-(-size // block) for size in shards.tolist())
    shard_of = np.repeat(np.arange(shards.size), shards)
    for number, (start, stop) in enumerate(windows_of(blocks, epoch)):
        assert blocks.window(epoch, start) == blocks.window(epoch, stop - 1) == number
        records = np.sort(found[start:stop])
        # Runs of neighbours in one shard: a window never reads more ranges than it has blocks.
        ranges = 1 + np.count_nonzero((np.diff(records) > 1) | (np.diff(shard_of[records]) > 0))
        assert ranges <= window
        assert records.size <= window * block
    assert stop == num_records
    assert blocks.num_windows == -(-blocks.num_blocks // window)


@given(st.integers(1, 500), st.integers(1, 60))
def test_blocks_of_a_shard_are_even(num_records: int, block: int) -> None:
    blocks = Blocks(np.array([num_records]), BlockSizes(block, 1), seed=0)
    assert blocks.sizes.sum() == num_records
    assert blocks.sizes.max() <= block
    assert blocks.sizes.max() - blocks.sizes.min() <= 1


def test_a_block_as_large_as_a_shard_is_the_shard() -> None:
    shards = np.array([40, 41, 40])
    blocks = Blocks(shards, BlockSizes(41, 1), seed=3)
    found = blocks.ordinals(0, np.arange(121))
    starts = {0: 40, 40: 41, 81: 40}
    for start, stop in windows_of(blocks, 0):
        records = np.sort(found[start:stop])
        assert records.tolist() == list(range(records[0], records[0] + starts.pop(int(records[0]))))
    assert not starts


def test_epochs_mix_other_blocks() -> None:
    blocks = Blocks(np.array([4000]), BlockSizes(10, 20), seed=0)
    first, second = (set(blocks.ordinals(epoch, np.arange(200)).tolist()) for epoch in (0, 1))
    assert len(first & second) < 60, "a window shares a twentieth of its records with that of another epoch"


def test_a_window_mixes_as_a_permutation_does() -> None:
    """Ten classes one after the other, all in one window: class counts of batches vary as by chance."""
    order = TrainingOrder(
        np.zeros(20_000, np.int32), seed=1, global_batch_size=100, blocks=BlockSizes(20, 1000)
    )
    labels = np.repeat(np.arange(10), 2000)
    counts = np.stack(
        [np.bincount(labels[batch], minlength=10) for batch in epoch_of(order, 0).reshape(-1, 100)]
    )
    chi_square = ((counts - 10.0) ** 2 / 10.0).sum(axis=1).mean()
    assert chi_square == pytest.approx(9, abs=1.5)  # nine degrees of freedom; 200 batches: deviation 0.3


def test_a_balance_rule_goes_with_records_only() -> None:
    labels = np.array([0, 0, 0, 1], np.int32)
    with pytest.raises(ConfigError, match="reads every record exactly once"):
        TrainingOrder(labels, seed=0, global_batch_size=2, balance=uniform, blocks=BlockSizes(2, 2))
    even = np.array([0, 0, 1, 1], np.int32)  # where classes are even, uniform is natural
    order = TrainingOrder(even, seed=0, global_batch_size=2, balance=uniform, blocks=BlockSizes(2, 2))
    assert sorted(epoch_of(order, 0).tolist()) == [0, 1, 2, 3]


def test_shards_hold_all_records() -> None:
    with pytest.raises(DataError, match="the shards have 9 records, but there are 10 labels"):
        TrainingOrder(
            np.zeros(10, np.int32),
            seed=0,
            global_batch_size=2,
            blocks=BlockSizes(2, 2),
            shard_sizes=np.array([4, 5]),
        )
