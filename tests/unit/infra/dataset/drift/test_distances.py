"""Distances of populations: known values, bounds, and that samples of one population stay within chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.dataset.drift.population import of_bits, of_classes, of_numbers, of_rates, spread
from shardmill.infra.dataset.drift.scales import Linear, Logarithmic

COUNTS = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any).map(np.array)


@pytest.mark.parametrize(
    ("before", "after", "common", "wanted"),
    [
        (100, 100, 0, math.sqrt(2 / 100)),
        (100, 25, 0, math.sqrt(1 / 100 + 1 / 25)),
        (100, 100, 100, 0.0),  # the same images
        (100, 200, 100, math.sqrt(100 * (1 / 200) ** 2 + 100 / 200**2)),
        (100, 50, 50, math.sqrt(50 * (1 / 100) ** 2 + 50 / 100**2)),  # half of them were removed
    ],
)
def test_spread(before: int, after: int, common: int, wanted: float) -> None:
    assert spread(before, after, common) == pytest.approx(wanted)


def test_spread_is_that_of_drawn_samples() -> None:
    values = np.random.default_rng(1).normal(size=(20_000, 30))  # 30 images; the first 20 were there before
    found = (values[:, :20].mean(axis=1) - values.mean(axis=1)).std()
    assert spread(20, 30, 20) == pytest.approx(found, rel=0.03)


@pytest.mark.parametrize(
    ("before", "after", "distance"),
    [([1, 0, 0], [0, 0, 1], 1.0), ([2, 2, 0], [1, 1, 0], 0.0), ([1, 1, 0, 0], [1, 1, 1, 1], 0.5)],
)
def test_numbers(before: list[int], after: list[int], distance: float) -> None:
    assert of_numbers(np.array(before), np.array(after), 0.1).value == pytest.approx(distance)


@pytest.mark.parametrize(
    ("before", "after", "distance"),
    [
        ({"a": 1, "b": 1}, {"a": 5, "b": 5}, 0.0),
        ({"a": 1}, {"b": 1}, 1.0),
        ({"a": 8, "b": 2}, {"a": 5, "b": 5}, 0.3),
        ({"a": 8, "b": 2}, {"a": 4, "b": 1, "c": 5}, 0.5),
    ],
)
def test_classes(before: dict[str, int], after: dict[str, int], distance: float) -> None:
    assert of_classes(before, after, 0.1).value == pytest.approx(distance)


def test_only_a_rise_of_a_rate_counts() -> None:
    assert of_rates(0.1, 0.4, 0.01).value == pytest.approx(0.3)
    assert of_rates(0.4, 0.1, 0.01).value == 0.0


@given(COUNTS, COUNTS, st.floats(0, 2))
def test_distances_lie_between_0_and_1_and_do_not_depend_on_the_direction(
    before: np.ndarray, after: np.ndarray, deviation: float
) -> None:
    names = "wxyz"
    for one, other in (
        (of_numbers(before, after, deviation), of_numbers(after, before, deviation)),
        tuple(
            of_classes(
                dict(zip(names, a.tolist(), strict=True)),
                dict(zip(names, b.tolist(), strict=True)),
                deviation,
            )
            for a, b in ((before, after), (after, before))
        ),
        (of_bits(before, 60, after, 70, deviation), of_bits(after, 70, before, 60, deviation)),
    ):
        assert one.value == pytest.approx(other.value)
        assert -1e-12 <= one.value <= 1 + 1e-12
        assert 0 <= one.chance <= 1


@pytest.mark.parametrize(("num_before", "num_after"), [(20, 10), (300, 20), (1000, 400)])
def test_samples_of_one_population_stay_within_chance(num_before: int, num_after: int) -> None:
    rng = np.random.default_rng(3)
    deviation = spread(num_before, num_after)
    shares = [0.5, 0.3, 0.1, 0.06, 0.04]
    for _ in range(300):
        drawn = [np.bincount(rng.choice(5, size, p=shares), minlength=5) for size in (num_before, num_after)]
        numbers = of_numbers(*drawn, deviation)
        assert numbers.value <= numbers.chance
        classes = of_classes(*(dict(enumerate(map(int, one))) for one in drawn), deviation)  # type: ignore[arg-type]
        assert classes.value <= classes.chance
        bits = [rng.random((size, 64)) < 0.4 for size in (num_before, num_after)]
        looks = of_bits(bits[0].sum(axis=0), num_before, bits[1].sum(axis=0), num_after, deviation)
        assert looks.value <= looks.chance


@given(st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-4))
def test_logarithmic_bins_keep_three_digits(value: float) -> None:
    scale = Logarithmic()
    (number,) = scale.bins(np.array([value]))
    assert scale.value(int(number)) == pytest.approx(value, rel=0.002)


def test_bins_of_odd_values() -> None:
    scale = Logarithmic()
    values = [scale.value(int(number)) for number in scale.bins(np.array([0.0, 1e-30, 1e300, -1e300]))]
    assert values[:2] == [0.0, 0.0]
    assert values[2] == -values[3] > 1e11
    assert Linear(0, 1, 10).bins(np.array([-3.0, 4.0, 99.0])).tolist() == [0, 4, 9]
