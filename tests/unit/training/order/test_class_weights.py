"""Class weights: what an example of each class weighs, with and without a balance rule, and in a step."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.training.order import TrainingOrder
from shardmill.training.order.balance.class_weights import WEIGHT_RULES, balanced, effective_number
from shardmill.training.order.balance.class_weights import given as as_given
from shardmill.training.order.balance.rules import RULES
from tests.samples.datasets.orders import CLASS_COUNTS, SEEDS, labels_of

COUNTS = np.array([60, 30, 10, 0])


@pytest.mark.parametrize(
    ("draws", "weights"),
    [
        (COUNTS, [100 / 180, 100 / 90, 100 / 30, 0]),
        # What the rule drew evenly already needs no weight; a class that it never draws has none.
        (np.array([50, 50, 0, 0]), [1, 1, 0, 0]),
        (np.array([75, 25, 0, 0]), [2 / 3, 2, 0, 0]),
    ],
)
def test_balanced(draws: np.ndarray, weights: list[float]) -> None:
    assert balanced(COUNTS, draws) == pytest.approx(weights)


def test_effective_number_is_one_over_that_number() -> None:
    found = effective_number(COUNTS, COUNTS, beta=0.9)
    wanted = 1 / np.array([(1 - 0.9**n) / 0.1 for n in (60, 30, 10)])
    assert found[:3] / found[0] == pytest.approx(wanted / wanted[0])
    assert found[3] == 0
    assert effective_number(COUNTS, COUNTS, beta=0.0)[:3] == pytest.approx([1, 1, 1])


@given(CLASS_COUNTS, st.sampled_from(sorted(RULES)), st.sampled_from(sorted(WEIGHT_RULES)))
def test_the_mean_weight_of_an_epoch_is_one(counts: list[int], balance: str, weights: str) -> None:
    draws = RULES[balance](np.array(counts))
    found = WEIGHT_RULES[weights](np.array(counts), draws)
    assert (found * draws).sum() == pytest.approx(draws.sum())
    assert (found[draws > 0] > 0).all()


@given(SEEDS, CLASS_COUNTS, st.integers(1, 20))
@settings(deadline=None)
def test_weights_of_a_step_are_in_the_ratio_of_the_classes(seed: int, counts: list[int], batch: int) -> None:
    labels = labels_of(counts)
    of_class = 0.5 + np.arange(8)
    rule = partial(as_given, weights=of_class)
    order = TrainingOrder(labels, seed=seed, global_batch_size=batch, class_weights=rule)
    for step in range(order.steps_per_epoch):
        plan = order.step(0, step)
        each = of_class[labels[plan.ordinals[: plan.num_real]]]
        assert plan.weights[: plan.num_real] == pytest.approx(each / each.sum(), rel=1e-5)
        assert plan.weights.dtype == np.float32


def test_the_rarest_class_of_a_large_split_still_weighs() -> None:
    labels = np.zeros(1_000_000, np.int32)
    labels[0] = 1
    order = TrainingOrder(labels, seed=0, global_batch_size=1_000_000, class_weights=balanced)
    plan = order.step(0, 0)
    assert plan.weights.min() > 0
    assert plan.weights[plan.ordinals == 0] == pytest.approx(0.5)
