"""Balance rules: what each draws, by tables; that they add up, by properties; and their values, pinned."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError
from shardmill.training.order import TrainingOrder
from shardmill.training.order.balance.rules import (
    RULES,
    by_weights,
    class_mass,
    divide_draws,
    effective_number,
    natural,
    repeat_factor,
    sqrt,
    uniform,
)
from tests.samples.datasets.orders import CLASS_COUNTS, epoch_of, labels_of


def counts_of(*counts: int) -> np.ndarray:
    return np.array(counts, np.int64)


@pytest.mark.parametrize(
    ("rule", "counts", "draws"),
    [
        (natural, (700, 200, 100), [700, 200, 100]),
        (uniform, (700, 200, 100), [334, 333, 333]),
        (uniform, (700, 0, 300), [500, 0, 500]),
        (sqrt, (900, 100, 0), [750, 250, 0]),
        (sqrt, (400, 100, 25), [300, 150, 75]),
        # beta 0: an example is worth one, whatever its class has; near 1: nothing of the counts is left.
        (partial(effective_number, beta=0.0), (700, 200, 100), [700, 200, 100]),
        (partial(effective_number, beta=1 - 1e-12), (700, 200, 100), [334, 333, 333]),
        # E = 1, 3/2, 7/4 at beta 1/2: masses 1, 4/3, 12/7, that is 1.48, 1.98 and 2.54 of 6.
        (partial(effective_number, beta=0.5), (1, 2, 3), [1, 2, 3]),
        # E = 6.5, 10.0, 10.0: 1.54, 10.0 and 100.0 of 111.5.
        (partial(effective_number, beta=0.9), (10, 100, 1000), [15, 100, 995]),
        # Frequencies 0.9, 0.09, 0.01; factors 1, 1, sqrt(4): 900 : 90 : 20 of 1010.
        (partial(repeat_factor, threshold=0.04), (900, 90, 10), [891, 89, 20]),
        (repeat_factor, (900, 90, 10), [900, 90, 10]),
        (partial(repeat_factor, threshold=1.0), (900, 100), [750, 250]),  # above all frequencies it is sqrt
        (partial(by_weights, weights=np.array([1.0, 3.0, 0.0])), (50, 25, 25), [25, 75, 0]),
        (partial(by_weights, weights=np.array([1.0, 3.0])), (50, 0), [50, 0]),
        (partial(by_weights, weights=np.array([1.0, 1.0, 7.0])), (3, 1), [2, 2]),  # labels without records
    ],
)
def test_draws(rule: object, counts: tuple[int, ...], draws: list[int]) -> None:
    assert callable(rule)
    assert rule(counts_of(*counts)).tolist() == draws


def test_effective_number_is_the_formula_of_the_paper() -> None:
    counts = counts_of(1, 10, 500, 100_000)
    for beta in (0.1, 0.9, 0.999, 0.9999):
        effective = [sum(beta**j for j in range(n)) for n in counts.tolist()]  # the series that E_n sums
        assert class_mass(counts, beta) == pytest.approx(counts / np.array(effective), rel=1e-9)


def test_weights_for_classes_without_records_are_refused() -> None:
    with pytest.raises(ConfigError, match="no class that has records"):
        by_weights(counts_of(5, 5, 0), np.array([0.0, 0.0, 2.0]))


@given(CLASS_COUNTS, st.sampled_from(sorted(RULES)))
def test_draws_add_up_and_empty_classes_get_none(counts: list[int], name: str) -> None:
    found = RULES[name](counts_of(*counts))
    assert found.sum() == sum(counts)
    assert (found >= 0).all()
    assert not found[counts_of(*counts) == 0].any()


@given(CLASS_COUNTS, st.lists(st.floats(0, 1e6), min_size=8, max_size=8))
@settings(deadline=None)
def test_explicit_weights_are_kept_within_one_draw(counts: list[int], weights: list[float]) -> None:
    given_weights = np.where(counts_of(*counts) > 0, weights[: len(counts)], 0)
    if not given_weights.any():
        return
    labels = labels_of(counts)
    rule = partial(by_weights, weights=np.array(weights))
    order = TrainingOrder(labels, seed=1, global_batch_size=7, balance=rule)
    found = np.bincount(labels[epoch_of(order, 0)], minlength=len(counts))
    fair = given_weights / given_weights.sum() * labels.size
    assert (np.abs(found - fair) < 1 + 1e-6).all()
    assert not found[given_weights == 0].any()


@pytest.mark.parametrize("name", ["sqrt", "effective-number", "repeat-factor"])
def test_rules_lie_between_natural_and_uniform(name: str) -> None:
    """Records of rare classes are drawn more often, and yet rare classes less often."""
    counts = counts_of(100_000, 20_000, 3_000, 40)
    found = RULES[name](counts)
    assert (np.diff(found) < 0).all()
    assert found[-1] / counts[-1] > found[0] / counts[0]
    assert (np.diff(found / counts) > -1e-4).all()


@pytest.mark.parametrize(
    ("weights", "counts", "draws"),
    [
        ([1, 1, 1], [4, 4, 4], [4, 4, 4]),
        ([1, 1, 1], [8, 1, 1], [4, 3, 3]),  # what is left over goes to the class with more records
        ([1, 1, 1], [1, 8, 2], [3, 4, 4]),
        ([1, 1], [5, 0], [5, 0]),  # a class without records gets nothing
        ([3, 1], [2, 2], [3, 1]),
        ([0, 1e-9, 1], [90, 5, 5], [0, 0, 100]),  # nor does one without weight
    ],
)
def test_divide_draws(weights: list[float], counts: list[int], draws: list[int]) -> None:
    assert divide_draws(np.array(weights, float), np.array(counts)).tolist() == draws
