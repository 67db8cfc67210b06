"""The order by record: each once, exact counts, repeats spread (for all orders: test_order_promises.py)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError, DataError
from shardmill.training.order import SequentialOrder, TrainingOrder
from shardmill.training.order.balance.class_draws import Intervals
from shardmill.training.order.balance.rules import sqrt, uniform
from tests.samples.datasets.orders import CLASS_COUNTS, SEEDS, epoch_of, labels_of


@given(SEEDS, st.integers(0, 1000), st.integers(1, 300), st.integers(1, 64))
def test_natural_takes_each_record_once(seed: int, epoch: int, num_records: int, batch: int) -> None:
    order = TrainingOrder(np.zeros(num_records, np.int32), seed=seed, global_batch_size=batch)
    assert sorted(epoch_of(order, epoch)) == list(range(num_records))


@given(SEEDS, CLASS_COUNTS, st.integers(1, 32))
@settings(deadline=None)
def test_uniform_has_exact_class_counts_and_spreads_repeats(seed: int, counts: list[int], batch: int) -> None:
    labels = labels_of(counts)
    order = TrainingOrder(labels, seed=seed, global_batch_size=batch, balance=uniform)
    wanted = uniform(np.array(counts))
    in_all = np.zeros(labels.size, np.int64)
    for epoch in range(4):
        ordinals = epoch_of(order, epoch)
        assert np.bincount(labels[ordinals], minlength=len(counts)).tolist() == wanted.tolist()
        times = np.bincount(ordinals, minlength=labels.size)
        in_all += times
        for label, (draws, count) in enumerate(zip(wanted.tolist(), counts, strict=True)):
            if count:
                of_class = times[labels == label]
                assert of_class.min() == draws // count
                assert of_class.max() == -(-draws // count)
    for label in np.unique(labels):
        of_class = in_all[labels == label]
        assert of_class.max() - of_class.min() <= 1, "a class must rotate through all its records"


@given(SEEDS, CLASS_COUNTS)
@settings(deadline=None)
def test_repeats_lie_in_successive_passes(seed: int, counts: list[int]) -> None:
    labels = labels_of(counts)
    order = TrainingOrder(labels, seed=seed, global_batch_size=1, balance=uniform)
    ordinals = epoch_of(order, epoch=1)
    # Along the segments: within a segment positions are shuffled, so sort classes' draws by segment only.
    draws = uniform(np.array(counts))
    present = np.flatnonzero(counts)
    num_segments = max(math.ceil(draws[label] / counts[label]) for label in present)
    bounds = np.cumsum([len(range(k, labels.size, num_segments)) for k in range(num_segments)])[:-1]
    for segment in np.split(ordinals, bounds):
        times = np.bincount(segment, minlength=1)
        assert times.max(initial=0) <= 2, "twice at most, where one pass ends and the next begins"
        shares = np.bincount(labels[segment], minlength=len(counts))
        assert (np.abs(shares - draws / num_segments) < 1).all(), "every segment has its share of each class"


def test_the_order_differs_by_seed_and_epoch() -> None:
    labels = np.zeros(500, np.int32)
    epochs = {
        tuple(epoch_of(TrainingOrder(labels, seed=seed, global_batch_size=50), epoch))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(epochs) == 9


def test_sequential_order_pads_with_zero_weight() -> None:
    order = SequentialOrder(5, 3)
    assert order.steps_per_epoch == 2
    last = order.step(0, 1)
    assert last.ordinals.tolist() == [3, 4, 0]
    assert last.weights.tolist() == [1, 1, 0]
    assert SequentialOrder(5, 3, "drop").steps_per_epoch == 1


def test_no_records_is_an_error() -> None:
    with pytest.raises(DataError, match="no records"):
        TrainingOrder(np.zeros(0, np.int32), seed=0, global_batch_size=4)


def test_a_batch_that_cannot_be_filled_is_an_error() -> None:
    with pytest.raises(ConfigError, match="at most 5"):
        TrainingOrder(np.zeros(5, np.int32), seed=0, global_batch_size=6, last_batch="drop")


def test_a_large_step_is_that_of_many_small_ones() -> None:
    """Steps beyond the span that is computed at once, and steps that lie in two spans."""
    labels = np.zeros(50_000, np.int32)
    whole = TrainingOrder(labels, seed=5, global_batch_size=1).ordinals(1, np.arange(labels.size))
    for batch in (3, 5000, 9000, 60_000):
        order = TrainingOrder(labels, seed=5, global_batch_size=batch)
        assert np.array_equal(epoch_of(order, 1), whole)


def test_positions_asked_for_alone_are_those_of_the_whole_epoch() -> None:
    """Many positions are computed with a table of the keys of all passes, a few without."""
    labels = labels_of([300, 40, 7, 1])
    positions = np.arange(labels.size)
    order = TrainingOrder(labels, seed=2, global_batch_size=8, balance=sqrt)
    alone = [order.ordinals(3, positions[at : at + 1]) for at in range(positions.size)]
    assert np.array_equal(np.concatenate(alone), order.ordinals(3, positions))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=200).filter(any), st.data())
def test_intervals_are_found_as_by_a_search(sizes: list[int], data: st.DataObject) -> None:
    ends = np.cumsum(sizes)
    drawn = data.draw(st.lists(st.integers(0, int(ends[-1]) - 1), max_size=50))
    numbers = np.array([*drawn, 0, ends[-1] - 1, *(ends[ends < ends[-1]]), *(ends[ends > 0] - 1)])
    assert Intervals(ends).at(numbers).tolist() == np.searchsorted(ends, numbers, side="right").tolist()
