"""The order's promises: exactly once, equal steps, exact counts, resume and ranks that change nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import ConfigError, DataError
from training.order import SequentialOrder, TrainingOrder, rank_slice
from training.order.balance import RULES, apportion

seeds = st.integers(0, 2**63 - 1)
class_counts = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)


def labels_of(counts: list[int], seed: int = 0) -> np.ndarray:
    """Labels with these counts, in an order that is not sorted by class."""
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int32)


def epoch_of(order: TrainingOrder, epoch: int) -> np.ndarray:
    """The real ordinals of an epoch, step by step."""
    plans = [order.step(epoch, step) for step in range(order.steps_per_epoch)]
    return np.concatenate([plan.ordinals[: plan.num_real] for plan in plans])


@given(seeds, st.integers(0, 1000), st.integers(1, 300), st.integers(1, 64))
def test_natural_takes_each_record_once(seed: int, epoch: int, num_records: int, batch: int) -> None:
    order = TrainingOrder(np.zeros(num_records, np.int32), seed=seed, global_batch_size=batch)
    assert sorted(epoch_of(order, epoch)) == list(range(num_records))


@given(seeds, class_counts, st.integers(1, 32))
@settings(deadline=None)
def test_uniform_has_exact_class_counts_and_spreads_repeats(seed: int, counts: list[int], batch: int) -> None:
    labels = labels_of(counts)
    order = TrainingOrder(labels, seed=seed, global_batch_size=batch, balance="uniform")
    wanted = RULES["uniform"](np.array(counts))
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


@given(seeds, class_counts)
@settings(deadline=None)
def test_repeats_lie_in_successive_passes(seed: int, counts: list[int]) -> None:
    labels = labels_of(counts)
    order = TrainingOrder(labels, seed=seed, global_batch_size=1, balance="uniform")
    ordinals = epoch_of(order, epoch=1)
    # Along the segments: within a segment positions are shuffled, so sort classes' draws by segment only.
    draws = RULES["uniform"](np.array(counts))
    present = np.flatnonzero(counts)
    num_segments = max(math.ceil(draws[label] / counts[label]) for label in present)
    bounds = np.cumsum([len(range(k, labels.size, num_segments)) for k in range(num_segments)])[:-1]
    for segment in np.split(ordinals, bounds):
        times = np.bincount(segment, minlength=1)
        assert times.max(initial=0) <= 2, "twice at most, where one pass ends and the next begins"
        shares = np.bincount(labels[segment], minlength=len(counts))
        assert (np.abs(shares - draws / num_segments) < 1).all(), "every segment has its share of each class"


@given(
    seeds, class_counts, st.integers(1, 50), st.sampled_from(sorted(RULES)), st.sampled_from(["pad", "drop"])
)
@settings(deadline=None)
def test_steps_have_one_shape_and_weights_of_a_mean(
    seed: int, counts: list[int], batch: int, balance: str, last_batch: str
) -> None:
    labels = labels_of(counts)
    if last_batch == "drop" and labels.size < batch:
        with pytest.raises(ConfigError, match=r"at most"):
            TrainingOrder(labels, seed=seed, global_batch_size=batch, last_batch="drop")
        return
    order = TrainingOrder(labels, seed=seed, global_batch_size=batch, balance=balance, last_batch=last_batch)
    wanted = labels.size // batch if last_batch == "drop" else -(-labels.size // batch)
    assert order.steps_per_epoch == wanted
    for step in range(order.steps_per_epoch):
        plan = order.step(3, step)
        assert plan.ordinals.shape == plan.weights.shape == plan.positions.shape == (batch,)
        assert plan.weights.sum() == pytest.approx(1, abs=1e-5)
        assert np.count_nonzero(plan.weights) == plan.num_real
        assert ((plan.ordinals >= 0) & (plan.ordinals < labels.size)).all()
    with pytest.raises(IndexError):
        order.step(0, order.steps_per_epoch)


@given(seeds, class_counts, st.integers(1, 30), st.integers(1, 9), st.sampled_from(sorted(RULES)), st.data())
@settings(deadline=None)
def test_any_ranks_and_any_resume_give_the_unbroken_order(
    seed: int, counts: list[int], batch: int, ranks: int, balance: str, data: st.DataObject
) -> None:
    labels = labels_of(counts)
    unbroken = TrainingOrder(labels, seed=seed, global_batch_size=batch, balance=balance)
    step = data.draw(st.integers(0, unbroken.steps_per_epoch - 1))
    epoch = data.draw(st.integers(0, 5))
    whole = unbroken.step(epoch, step)
    again = TrainingOrder(labels, seed=seed, global_batch_size=batch, balance=balance)
    slices = [again.step(epoch, step).of_rank(rank, ranks) for rank in range(ranks)]
    assert np.concatenate([plan.ordinals for plan in slices]).tolist() == whole.ordinals.tolist()
    assert np.concatenate([plan.positions for plan in slices]).tolist() == whole.positions.tolist()
    assert np.concatenate([plan.weights for plan in slices]).tolist() == whole.weights.tolist()
    sizes = {plan.ordinals.size for plan in slices}
    assert max(sizes) - min(sizes) <= 1


def test_rank_slices_follow_the_formula() -> None:
    assert [rank_slice(10, rank, 4) for rank in range(4)] == [
        slice(0, 2), slice(2, 5), slice(5, 7), slice(7, 10)
    ]  # fmt: skip


def test_the_order_differs_by_seed_and_epoch() -> None:
    labels = np.zeros(500, np.int32)
    epochs = {
        tuple(epoch_of(TrainingOrder(labels, seed=seed, global_batch_size=50), epoch))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(epochs) == 9


# The order must never change between versions: these values are its definition.
KNOWN_NATURAL = {
    (0, 0): [1, 4, 5, 9, 2, 10, 8, 6, 11, 3, 7, 0],
    (0, 1): [2, 1, 3, 9, 8, 5, 4, 6, 0, 7, 11, 10],
    (1099511627776, 3): [2, 6, 9, 0, 11, 1, 5, 8, 3, 4, 10, 7],
}
KNOWN_UNIFORM = {
    (0, 0): [11, 10, 0, 7, 9, 11, 11, 1, 8, 11, 4, 9],
    (0, 1): [9, 11, 6, 8, 5, 11, 11, 3, 10, 11, 8, 2],
    (9, 5): [9, 5, 11, 3, 11, 8, 11, 7, 10, 9, 11, 4],
}
KNOWN_LARGE = [[859652, 795757, 576731, 486607], [255189, 472554, 588615, 859652]]


@pytest.mark.parametrize(("seed", "epoch"), sorted(KNOWN_NATURAL))
def test_known_natural_order(seed: int, epoch: int) -> None:
    order = TrainingOrder(np.zeros(12, np.int32), seed=seed, global_batch_size=5)
    assert epoch_of(order, epoch).tolist() == KNOWN_NATURAL[seed, epoch]


@pytest.mark.parametrize(("seed", "epoch"), sorted(KNOWN_UNIFORM))
def test_known_uniform_order(seed: int, epoch: int) -> None:
    labels = np.array([0] * 8 + [1] * 3 + [2], np.int32)
    order = TrainingOrder(labels, seed=seed, global_batch_size=5, balance="uniform")
    assert epoch_of(order, epoch).tolist() == KNOWN_UNIFORM[seed, epoch]


def test_known_places_in_a_large_epoch() -> None:
    order = TrainingOrder(np.zeros(1_000_003, np.int8), seed=7, global_batch_size=64)
    assert order.step(2, 0).ordinals[:4].tolist() == KNOWN_LARGE[0]
    assert order.step(2, order.steps_per_epoch - 1).ordinals[:4].tolist() == KNOWN_LARGE[1]


@pytest.mark.parametrize(
    ("weights", "counts", "draws"),
    [
        ([1, 1, 1], [4, 4, 4], [4, 4, 4]),
        ([1, 1, 1], [8, 1, 1], [4, 3, 3]),  # what is left over goes to the class with more records
        ([1, 1, 1], [1, 8, 2], [3, 4, 4]),
        ([1, 1], [5, 0], [5, 0]),  # a class without records gets nothing
        ([3, 1], [2, 2], [3, 1]),
    ],
)
def test_apportion(weights: list[float], counts: list[int], draws: list[int]) -> None:
    assert apportion(np.array(weights, float), np.array(counts)).tolist() == draws


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
