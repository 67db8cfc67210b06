"""The order of several data sets: its values, its shares, and the promises of every order."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.settings import validate
from shardmill.training.config.data import DataSettings
from shardmill.training.order import MixedOrder, StepPlan, TrainingOrder, order_from_settings
from shardmill.training.order.mixtures import Deal, parts_of_weights, seed_of_set, weights_of_sizes
from shardmill.training.reading import SplitTable
from tests.samples.datasets.orders import table_of

CLASSES = ["ant", "bee", "cow"]
SIZES = (7, 12)
# The first steps of four by (seed, epoch), of sets of 7 and 12 records with weights 0.7 and 0.3. They are the
# definition of the order: if one changes, no run can be resumed or repeated.
KNOWN = {
    (0, 0): [[3, 12, 5, 6], [1, 11, 0, 2], [14, 4, 6, 16]],
    (0, 1): [[3, 0, 5, 8], [2, 4, 9, 1], [4, 15, 5, 1]],
    (1099511627776, 3): [[3, 2, 14, 5], [1, 9, 0, 6], [5, 12, 2, 4]],
}
KNOWN_DEALS = {
    (7, 3): [0, 1, 0, 0, 0, 1, 0, 0, 1, 0],
    (1, 1, 1): [0, 1, 2],
    (5, 3, 2): [0, 1, 0, 2, 0, 1, 0, 2, 1, 0],
    (1, 9): [1, 1, 1, 1, 0, 1, 1, 1, 1, 1],
}
WEIGHTS = st.lists(st.integers(1, 40), min_size=2, max_size=6)


def mixed(sizes: tuple[int, ...] = SIZES, **given: Any) -> MixedOrder:
    """The order of sets with labels in turn, from settings."""
    arguments = {"global_batch_size": 4, "mixture_weights": [0.7, 0.3]} | given
    order = order_from_settings(validate(DataSettings, arguments), table(sizes), CLASSES)
    assert isinstance(order, MixedOrder)
    return order


def table(sizes: tuple[int, ...]) -> SplitTable:
    """The table of sets with so many records, whose labels take turns."""
    return replace(table_of(np.arange(sum(sizes), dtype=np.int32) % 3), set_sizes=sizes)


def sequence(order: MixedOrder, epochs: int) -> list[StepPlan]:
    """All steps of some epochs."""
    return [order.step(epoch, step) for epoch in range(epochs) for step in range(order.steps_per_epoch)]


@pytest.mark.parametrize(("seed", "epoch"), KNOWN)
def test_the_values_of_the_order(seed: int, epoch: int) -> None:
    order = mixed(seed=seed)
    assert [order.step(epoch, step).ordinals.tolist() for step in range(3)] == KNOWN[seed, epoch]


@pytest.mark.parametrize(("parts", "sets"), KNOWN_DEALS.items())
def test_the_values_of_the_deal(parts: tuple[int, ...], sets: list[int]) -> None:
    found, draws = Deal(parts).at(np.arange(2 * len(sets)))
    assert found.tolist() == sets * 2
    for number in range(len(parts)):
        assert draws[found == number].tolist() == [*range(2 * parts[number])], (
            "each draw of a set once, in turn"
        )


def specified_parts(weights: list[float]) -> list[int]:
    """The positions of each set in a period, as the specification says."""
    exact = [Fraction(repr(float(weight))) for weight in weights]
    total = sum(exact)
    period = 1
    while period <= 65_536 and any((weight / total * period).denominator > 1 for weight in exact):
        period += 1
    if period <= 65_536:
        return [int(weight / total * period) for weight in exact]
    spare = 65_536 - len(exact)
    wanted = [max(65_536 * weight / total - 1, 0) for weight in exact]
    scaled = [spare * one / sum(wanted) for one in wanted]
    parts = [1 + math.floor(one) for one in scaled]
    while sum(parts) < 65_536:
        rest = [
            round(float(one - math.floor(one)), 6) if 1 + math.floor(one) == part else -1.0
            for one, part in zip(scaled, parts, strict=True)
        ]
        parts[rest.index(max(rest))] += 1
    return parts


def specified_sets(parts: list[int], positions: int) -> Iterator[tuple[int, int]]:
    """The set of each position, and the number of its draw, as the specification says."""
    period, ahead, came = sum(parts), Fraction(1, 2 * len(parts) - 2), [0] * len(parts)
    for position in range(positions):
        share = position % period + 1
        first = position - position % period
        own = [number - first // period * part for number, part in zip(came, parts, strict=True)]
        may = [k for k, part in enumerate(parts) if Fraction(share * part, period) >= own[k] + ahead]
        chosen = min(may, key=lambda k: (own[k] + 1 - ahead) / parts[k])
        yield chosen, came[chosen]
        came[chosen] += 1


def specified_run(sizes: list[int], parts: list[int], batch: int, steps: int, seed: int) -> list[list[int]]:
    """The ordinals of each step of a run."""
    own = [TrainingOrder(np.zeros(n, np.int32), seed=seed_of_set(seed, k), global_batch_size=1)
           for k, n in enumerate(sizes)]  # fmt: skip
    found = [
        sum(sizes[:k]) + int(own[k].ordinals(draw // sizes[k], np.array([draw % sizes[k]]))[0])
        for k, draw in specified_sets(parts, batch * steps)
    ]
    return [found[at : at + batch] for at in range(0, len(found), batch)]


ADVERSARIAL = [
    ([1e-9, 1.0, 1e-9], [1, 3, 2]),
    ([1.0] * 20, [1] * 20),
    ([0.1 + 0.01 * k for k in range(20)], [1 + k % 3 for k in range(20)]),
    ([1e9, 1e-9], [2, 1]),
    ([1 / 3, 1 / 7, 5e-5], [5, 1, 9]),
    ([0.7, 0.3], [1, 400]),
]


@pytest.mark.parametrize(("weights", "sizes"), ADVERSARIAL)
@pytest.mark.parametrize("end", ["first", 7])
def test_the_order_is_the_specified_one(weights: list[float], sizes: list[int], end: str | int) -> None:
    order = mixed(tuple(sizes), mixture_weights=weights, global_batch_size=6, seed=11, mixture_end=end)
    parts = specified_parts(weights)
    assert parts_of_weights(weights) == parts
    steps = [plan.ordinals.tolist() for plan in sequence(order, 3 if order.steps_per_epoch < 40 else 1)][:60]
    assert steps == specified_run(sizes, parts, 6, len(steps), 11)


@given(st.lists(st.integers(1, 12), min_size=2, max_size=20), st.data())
@settings(deadline=None, max_examples=10)
def test_any_order_is_the_specified_one(sizes: list[int], data: st.DataObject) -> None:
    weight = st.one_of(st.integers(1, 50), st.floats(1e-9, 1e9), st.just(1e-9))
    weights = [float(data.draw(weight)) for _ in sizes]
    batch, seed = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 2**63 - 1))
    order = mixed(tuple(sizes), mixture_weights=weights, global_batch_size=batch, seed=seed, mixture_end=3)
    parts = parts_of_weights(weights)
    assert (len(parts), min(parts) >= 1, sum(parts) <= 65_536) == (len(sizes), True, True)
    steps = [plan.ordinals.tolist() for plan in sequence(order, 2)]
    assert steps == specified_run(sizes, parts, batch, 6, seed)


def test_a_huge_set_beside_one_of_one_record() -> None:
    """Sizes count by their number alone: 2e9 records beside 1, at a step of epoch 10^6."""
    deal = Deal(parts_of_weights(weights_of_sizes([2 * 10**9, 1], 1)))
    assert deal.parts.tolist() == [65_535, 1]
    sets, draws = deal.at(np.array([10**15, 10**15 + 65_536]))
    assert (np.diff(draws) == deal.parts[sets[0]]).all()
    assert deal.position(int(sets[0]), int(draws[0])) == 10**15


@given(WEIGHTS, st.integers(1, 30), st.integers(0, 10**12))
@settings(deadline=None)
def test_shares_hold_over_any_window(weights: list[int], batch: int, start: int) -> None:
    """Counted in whole numbers, from the start of the run and in windows far into it."""
    deal, num_sets = Deal(parts_of_weights(weights)), len(weights)
    assert [Fraction(int(part), deal.period) for part in deal.parts] == [
        Fraction(weight, sum(weights)) for weight in weights
    ]
    sets, draws = deal.at(start + np.arange(3 * deal.period + batch))
    for number, weight in enumerate(weights):
        came = np.concatenate([[0], np.cumsum(sets == number)])
        ahead = came * sum(weights) - np.arange(came.size) * weight  # in units of 1 / sum(weights)
        most = 1 if num_sets == 2 else 2 - Fraction(1, num_sets - 1)
        assert ahead.max() - ahead.min() <= most * sum(weights), "the largest difference between two windows"
        before = int(draws[sets == number][0]) * sum(weights) - start * weight
        assert (abs(before + ahead) < sum(weights)).all(), "within one example of its share since the start"


@given(st.lists(st.integers(1, 30), min_size=2, max_size=4), st.data())
@settings(deadline=None, max_examples=40)
def test_each_record_comes_once_in_an_epoch_of_its_set(sizes: list[int], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(sizes), max_size=len(sizes)))
    batch, seed = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 2**63 - 1))
    order = mixed(tuple(sizes), mixture_weights=weights, global_batch_size=batch, seed=seed)
    ordinals = np.concatenate([plan.ordinals for plan in sequence(order, 3)])
    first = 0
    for number, size in enumerate(sizes):
        own = ordinals[(ordinals >= first) & (ordinals < first + size)] - first
        alone = TrainingOrder(np.zeros(size, np.int32), seed=seed_of_set(seed, number), global_batch_size=1)
        for epoch, begin in enumerate(range(0, own.size, size)):
            part = own[begin : begin + size]
            assert np.unique(part).size == part.size
            assert part.tolist() == alone.ordinals(epoch, np.arange(part.size)).tolist()
        first += size


@given(st.integers(1, 40), st.integers(1, 8), st.data())
@settings(deadline=None, max_examples=40)
def test_ranks_and_resumes_change_nothing(batch: int, num_ranks: int, data: st.DataObject) -> None:
    weights = [data.draw(st.sampled_from([0.3, 2, 0.125])), data.draw(st.sampled_from([0.7, 5]))]
    arguments = {"mixture_weights": weights, "global_batch_size": batch, "class_weights": "balanced"}
    end = data.draw(st.sampled_from(["first", "last", 5]))
    unbroken = mixed(mixture_end=end, **arguments)
    plans = sequence(unbroken, 2)
    start = data.draw(st.integers(0, len(plans) - 1))
    resumed = (
        pickle.loads(pickle.dumps(unbroken))
        if data.draw(st.booleans())
        else mixed(mixture_end=end, **arguments)
    )
    for number in range(start, len(plans)):
        plan, again = plans[number], resumed.step(*divmod(number, unbroken.steps_per_epoch))
        parts = [again.of_rank(rank, num_ranks) for rank in range(num_ranks)]
        for name in ("ordinals", "positions", "weights"):
            assert (
                np.concatenate([getattr(part, name) for part in parts]).tolist()
                == getattr(plan, name).tolist()
            )
        assert plan.num_real == batch
        assert plan.weights.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("end", "positions"), [("first", 10), ("last", 40), (3, 12)], ids=["first", "last", "steps"]
)
def test_an_epoch_ends_where_it_is_said(end: str | int, positions: int) -> None:
    """7 records at 0.7 are through at position 10, 12 at 0.3 at position 39; steps of four are whole."""
    order = mixed(mixture_end=end, last_batch="drop")
    assert order.steps_per_epoch == -(-positions // 4)
    assert order.num_records == 4 * order.steps_per_epoch
    seen = np.concatenate([plan.ordinals for plan in sequence(order, 1)])
    if end == "first":
        assert np.unique(seen[seen < 7]).size == 7
    elif end == "last":
        assert np.unique(seen).size == 19


def test_a_balance_rule_holds_within_each_set() -> None:
    order = mixed(
        (9, 30), mixture_weights=[1, 1], balance="weights", balance_weights={"ant": 4, "bee": 4, "cow": 1}
    )
    seen = np.concatenate([plan.ordinals for plan in sequence(order, 10)])
    own = [seen[seen < 9][:9], seen[seen >= 9][:30]]
    assert [np.bincount(part % 3).tolist() for part in own] == [[4, 4, 1], [14, 13, 3]]


def test_class_weights_are_of_the_draws_of_all_sets() -> None:
    """Two sets of three and six records, one class each and one of both, at equal shares."""
    labels = np.array([0, 0, 2, 1, 1, 1, 1, 2, 2], np.int32)
    both = replace(table_of(labels), set_sizes=(3, 6))
    data = validate(
        DataSettings, {"mixture_weights": [1, 1], "class_weights": "balanced", "global_batch_size": 2}
    )
    order = order_from_settings(data, both, CLASSES)
    # Half of the draws are of each set: 1/3 of class 0, 1/3 of class 1, 1/3 of class 2.
    assert order.class_weights == pytest.approx([1, 1, 1])
    data = validate(
        DataSettings, {"mixture_weights": [1, 3], "class_weights": "balanced", "global_batch_size": 2}
    )
    order = order_from_settings(data, both, CLASSES)
    draws = np.array([2 / 3 / 4, 3 / 4 * 4 / 6, 1 / 3 / 4 + 3 / 4 * 2 / 6])
    assert order.class_weights == pytest.approx(1 / draws / 3)
    assert order.step(0, 0).weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("weights", "parts"),
    [
        ([0.7, 0.3], [7, 3]),
        ([1, 1, 1], [1, 1, 1]),
        ([0.1, 0.2, 0.7], [1, 2, 7]),
        ([2e-9, 1], [1, 65_535]),
        ([1 / 3, 2 / 3], [1, 2]),
        ([2**0.5, 1], [38_390, 27_146]),
        ([70_000, 130_000], [7, 13]),
    ],
)
def test_the_parts_of_weights(weights: list[float], parts: list[int]) -> None:
    assert parts_of_weights(weights) == parts


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=9))
@settings(deadline=None)
def test_parts_are_the_nearest(weights: list[float]) -> None:
    parts = parts_of_weights(weights)
    total = math.fsum(weights)
    for weight, part in zip(weights, parts, strict=True):
        assert part >= 1
        assert abs(part - max(weight / total * sum(parts), 1)) <= len(parts)


@pytest.mark.parametrize(
    ("temperature", "parts"),
    [(1, [1000, 10, 1]), (2, [0.9046, 0.0905, 0.0286]), (1000, [1.0023, 0.9977, 0.9954])],
)
def test_temperatures(temperature: float, parts: list[float]) -> None:
    found = np.array(weights_of_sizes([1000, 10, 1], temperature))
    expected = np.array([1000.0, 10, 1]) ** (1 / temperature)
    assert found / found.sum() == pytest.approx(expected / expected.sum(), rel=1e-9)


def test_a_set_that_is_hardly_drawn_has_one_position() -> None:
    weights = weights_of_sizes([10**9, 10, 1], 0.5)
    assert parts_of_weights(weights) == [65_534, 1, 1]


@pytest.mark.parametrize(
    ("sizes", "given", "message"),
    [
        ((), {"mixture_weights": [1, 1]}, "there is one data set"),
        ((3, 4), {"mixture_weights": [1, 1, 1]}, "3 numbers for 2 data sets"),
        ((3, 0), {"mixture_weights": [1, 1]}, "data set 2 of 2 has no records"),
        ((3, 4), {"mixture_weights": [1, 0]}, "mixture_weights"),
        ((3, 4), {"mixture_weights": [1, 1], "mixture_temperature": 2}, "both set the shares"),
        ((3, 4), {"mixture_temperature": 0}, "mixture_temperature"),
        ((3, 4), {"mixture_weights": [1, 1], "granularity": "block"}, "one order alone has windows"),
        ((3, 4), {"mixture_weights": [1, 1], "folds": 2, "left_out_fold": 1}, "folds divide"),
        ((3, 4), {"mixture_end": "last"}, "without shares"),
        (
            (3, 4),
            {"mixture_weights": [1, 1], "mixture_end": "middle"},
            "'first', 'last', or a number of steps",
        ),
        ((3, 4), {"mixture_weights": [1, 1], "mixture_end": 0}, "'first', 'last', or a number of steps"),
    ],
)
def test_what_does_not_fit_is_refused(sizes: tuple[int, ...], given: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, UsageError), match=message):
        order_from_settings(
            validate(DataSettings, given), table(sizes) if sizes else table_of(np.zeros(3, np.int32)), CLASSES
        )


def test_without_shares_all_data_sets_are_one() -> None:
    order = order_from_settings(validate(DataSettings, {"global_batch_size": 4}), table(SIZES), CLASSES)
    alone = TrainingOrder(table(SIZES).label, seed=0, global_batch_size=4)
    assert order.step(3, 2).ordinals.tolist() == alone.step(3, 2).ordinals.tolist()
