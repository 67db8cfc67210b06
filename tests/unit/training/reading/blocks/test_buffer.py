"""The buffer of blocks: which ones a step needs, each read once, and errors in background threads."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.training.order import BlockSizes, TrainingOrder
from shardmill.training.reading.blocks.buffer import BlockBuffer
from shardmill.training.reading.blocks.stored import BLOCK_MARGIN_STEPS, BlockLookahead
from tests.samples.datasets.orders import SEEDS, shard_sizes
from tests.samples.waiting import block_threads_end


def test_an_error_that_nobody_foresaw_reaches_the_one_who_waits() -> None:
    """A block that a background thread cannot read ends the wait for it."""
    begun, go_on = threading.Event(), threading.Event()
    reported: list[Any] = []

    def read(block: int) -> bytes:
        begun.set()
        go_on.wait(20)
        raise RuntimeError("a defect")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", reported.append)
        held = BlockBuffer(read)
        held.hold([7])
        assert begun.wait(20)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(held.get, 7)
            go_on.set()
            assert waiting.result(20) is None
        held.close()
        assert block_threads_end()
    assert [str(each.exc_value) for each in reported] == ["a defect"]


def test_what_is_wanted_no_more_is_let_go_and_what_stays_is_not_read_again() -> None:
    reads: Counter[int] = Counter()
    lock = threading.Lock()

    def read(block: int) -> bytes:
        with lock:
            reads[block] += 1
        return bytes(10)

    held = BlockBuffer(read)
    held.hold(range(6))
    assert block_threads_end()
    assert held.num_bytes == 60
    held.hold(range(4, 9))
    assert held.get(3) is None
    assert [held.get(block) for block in range(4, 9)] == 5 * [bytes(10)]
    assert reads == dict.fromkeys(range(9), 1)
    assert held.num_bytes == 50
    held.close()
    assert held.num_bytes == 0
    assert held.get(4) is None


@given(
    SEEDS,
    st.integers(1, 200),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 60),
    st.integers(0, 3),
    st.data(),
)
@settings(deadline=None)
def test_the_windows_hold_what_a_step_needs_and_seldom_more_than_two(
    seed: int, records: int, block: int, window: int, batch: int, epoch: int, data: st.DataObject
) -> None:
    shards = data.draw(shard_sizes(records))
    labels = np.zeros(records, np.int32)
    sizes = BlockSizes(block, window)
    order = TrainingOrder(labels, seed=seed, global_batch_size=batch, blocks=sizes, shard_sizes=shards)
    assert order.blocks is not None
    lookahead = BlockLookahead(order, order.blocks)
    at = epoch * order.steps_per_epoch + data.draw(st.integers(0, order.steps_per_epoch - 1))
    first = data.draw(st.integers(max(at - 5, 0), at))
    stop = data.draw(st.one_of(st.none(), st.integers(at + 1, at + 3 * order.steps_per_epoch)))
    windows = lookahead.windows(first, at, stop)
    held = np.unique(np.concatenate([lookahead.of_window(number) for number in windows]))
    for step in range(max(first, at - BLOCK_MARGIN_STEPS), at + 1):
        plan = order.step(*divmod(step, order.steps_per_epoch))
        assert np.isin(order.blocks.of_records(plan.ordinals[: plan.num_real]), held).all()
    needed = lookahead.windows(first, at, at + 1)
    assert len(windows) <= max(2, len(needed))
    assert windows.start == needed.start
