"""Folds of a split, and the order over the records of all folds but one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.training.order import FoldedRecords, SubsetOrder, TrainingOrder, fold_numbers


def records(num_records: int, num_classes: int = 3, group_size: int = 0, seed: int = 0) -> FoldedRecords:
    """Records of random ids; with ``group_size`` neighbours are in one group."""
    chance = np.random.default_rng(seed)
    ids = chance.integers(0, 2**63, num_records).astype(np.uint64)
    numbers = np.arange(num_records)
    groups = numbers // group_size if group_size else np.full(num_records, -1)
    return FoldedRecords(ids, (numbers % num_classes).astype(np.int32), groups)


@given(st.integers(0, 200), st.integers(1, 5), st.integers(2, 9), st.integers(0, 2**62))
def test_folds_have_the_same_share_of_each_class(
    num_records: int, num_classes: int, num_folds: int, seed: int
) -> None:
    facts = records(num_records, num_classes)
    folds = fold_numbers(facts, num_folds, seed)
    table = np.zeros((num_folds, num_classes), int)
    np.add.at(table, (folds, facts.labels), 1)
    assert np.ptp(table, axis=0).max() <= 1
    assert np.ptp(table.sum(axis=1)) <= 1


@given(st.integers(1, 60), st.integers(2, 5), st.integers(2, 5), st.randoms(use_true_random=False))
def test_groups_stay_whole_and_the_order_of_the_records_does_not_matter(
    num_records: int, group_size: int, num_folds: int, chance: object
) -> None:
    facts = records(num_records, group_size=group_size)
    folds = fold_numbers(facts, num_folds, seed=3)
    for group in np.unique(facts.groups):
        assert np.unique(folds[facts.groups == group]).size == 1
    moved = np.array(chance.sample(range(num_records), num_records))  # type: ignore[attr-defined]
    other_names = num_records - facts.groups[moved]  # groups are numbered as they come
    again = FoldedRecords(facts.ids[moved], facts.labels[moved], other_names)
    assert fold_numbers(again, num_folds, seed=3).tolist() == folds[moved].tolist()


def test_the_folds_are_pinned() -> None:
    assert fold_numbers(records(12), 3, seed=7).tolist() == PINNED
    assert fold_numbers(records(12), 3, seed=8).tolist() != PINNED


PINNED = [2, 1, 1, 0, 1, 2, 0, 0, 0, 1, 2, 2]


def test_the_order_over_some_records_has_each_of_them_once_and_no_other() -> None:
    labels = np.arange(20, dtype=np.int32) % 2
    kept = np.array([1, 2, 5, 7, 8, 11, 19])
    inner = TrainingOrder(labels[kept], seed=1, global_batch_size=3)
    order = SubsetOrder(inner, kept)
    assert (order.num_records, order.steps_per_epoch, order.blocks) == (7, 3, None)
    for epoch in range(2):
        plans = [order.step(epoch, step) for step in range(3)]
        drawn = np.concatenate([plan.ordinals[: plan.num_real] for plan in plans])
        assert sorted(drawn.tolist()) == kept.tolist()
        assert set(plans[-1].ordinals.tolist()) <= set(kept.tolist()), "padding too"
        same = [inner.step(epoch, step) for step in range(3)]
        assert all((one.positions == other.positions).all() for one, other in zip(plans, same, strict=True))


@pytest.mark.parametrize("count", [0, 1])
def test_few_records(count: int) -> None:
    assert fold_numbers(records(count), 5, seed=0).tolist() == [0] * count
