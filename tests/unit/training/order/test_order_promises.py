"""The promises of every order, by record and by block, under each balance rule, over random tables."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardmill.training.order import Shares, StepPlan
from tests.samples.datasets.orders import AnyOrder, any_order, epoch_of


def of_all_ranks(plan: StepPlan, ranks: int, shares: Shares | None = None) -> list[StepPlan]:
    return [plan.of_rank(rank, ranks, shares) for rank in range(ranks)]


def same(parts: list[StepPlan], whole: StepPlan) -> bool:
    return all(
        np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
        for name in ("ordinals", "positions", "weights")
    )


@given(any_order(), st.integers(0, 100))
@settings(deadline=None)
def test_an_epoch_has_exactly_the_draws_of_each_class(made: AnyOrder, epoch: int) -> None:
    order = made.make()
    found = epoch_of(order, epoch)
    if order.steps_per_epoch * order.global_batch_size >= order.num_records:
        assert np.bincount(made.labels[found]).tolist() == order.draws_per_class.tolist()
    if order.draws_per_class.tolist() == order.records_per_class.tolist():
        assert np.bincount(found).max() == 1, "each record at most once"
        assert found.size == min(order.num_records, order.steps_per_epoch * order.global_batch_size)
    else:
        most = -(-order.draws_per_class // np.maximum(order.records_per_class, 1))
        times = np.bincount(found, minlength=made.labels.size)
        assert (times <= most[made.labels]).all()


@given(any_order())
@settings(deadline=None)
def test_steps_have_one_shape_and_weights_of_a_mean(made: AnyOrder) -> None:
    order = made.make()
    batch, num_records = order.global_batch_size, made.labels.size
    dropped = made.arguments.get("last_batch") == "drop"
    assert order.steps_per_epoch == (num_records // batch if dropped else -(-num_records // batch))
    for step in range(order.steps_per_epoch):
        plan = order.step(3, step)
        assert plan.ordinals.shape == plan.weights.shape == plan.positions.shape == (batch,)
        assert plan.num_real == min(batch, num_records - step * batch)
        assert (plan.weights[: plan.num_real] > 0).all()
        assert not plan.weights[plan.num_real :].any(), "padding weighs nothing"
        assert plan.weights.sum() == pytest.approx(1, abs=1e-5)
        assert ((plan.ordinals >= 0) & (plan.ordinals < num_records)).all()
    for outside in (-1, order.steps_per_epoch):
        with pytest.raises(IndexError):
            order.step(0, outside)


@given(any_order(), st.data())
@settings(deadline=None)
def test_a_resume_at_any_step_gives_the_unbroken_order(made: AnyOrder, data: st.DataObject) -> None:
    unbroken = made.make()
    plans = [unbroken.step(epoch, step) for epoch in range(2) for step in range(unbroken.steps_per_epoch)]
    start = data.draw(st.integers(0, len(plans) - 1))
    resumed = pickle.loads(pickle.dumps(unbroken)) if data.draw(st.booleans()) else made.make()
    for number in range(start, len(plans)):
        again = resumed.step(*divmod(number, unbroken.steps_per_epoch))
        assert same([again], plans[number])


@given(any_order(), st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=7), min_size=1, max_size=4))
@settings(deadline=None)
def test_ranks_and_shares_may_change_at_any_step(made: AnyOrder, teams: list[list[int]]) -> None:
    order = made.make()
    for step in range(order.steps_per_epoch):
        shares = teams[step % len(teams)]
        whole = order.step(1, step)
        assert same(of_all_ranks(whole, len(shares)), whole)
        if order.global_batch_size * min(shares) >= sum(shares):
            assert same(of_all_ranks(whole, len(shares), shares), whole)


@given(any_order(), st.lists(st.integers(1, 9), min_size=1, max_size=7))
@settings(deadline=None)
def test_each_rank_has_one_shape_in_all_steps(made: AnyOrder, shares: list[int]) -> None:
    order = made.make()
    assume(order.global_batch_size * min(shares) >= sum(shares))
    ranks = len(shares)
    for of_ranks in (None, shares):
        shapes = {
            tuple(part.ordinals.size for part in of_all_ranks(order.step(0, step), ranks, of_ranks))
            for step in range(order.steps_per_epoch)
        }
        assert len(shapes) == 1
        sizes = np.array(shapes.pop())
        fair = np.array(of_ranks or [1] * ranks) / sum(of_ranks or [1] * ranks) * order.global_batch_size
        assert (np.abs(sizes - fair) < 1).all(), "the nearest whole numbers"


@given(any_order(), st.data())
@settings(deadline=None)
def test_positions_at_random_are_those_in_order(made: AnyOrder, data: st.DataObject) -> None:
    order = made.make()
    whole = order.ordinals(2, np.arange(order.num_records))
    some = np.array(data.draw(st.lists(st.integers(0, order.num_records - 1), min_size=1, max_size=20)))
    assert order.ordinals(2, some).tolist() == whole[some].tolist()
