"""Permutations computed per position: bijective for every size, even over their keys, and pinned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.training.draws import key_of, uniform
from shardmill.training.order.permutation import permute


@given(st.integers(1, 600), st.integers(0, 2**64 - 1))
def test_a_permutation_is_a_bijection(size: int, key: int) -> None:
    assert sorted(permute(np.arange(size), size, key).tolist()) == list(range(size))


@pytest.mark.parametrize("size", [2**14 - 1, 2**14, 2**14 + 1, 40_000])
def test_chunks_do_not_show(size: int) -> None:
    whole = permute(np.arange(size), size, 9)
    assert np.array_equal(np.sort(whole), np.arange(size))
    assert whole[[0, size // 2, size - 1]].tolist() == permute([0, size // 2, size - 1], size, 9).tolist()


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(0, 2**32))
def test_many_permutations_at_once_are_the_single_ones(sizes: list[int], key: int) -> None:
    keys = key_of(key, np.arange(len(sizes)))
    index = np.array([size // 2 for size in sizes])
    together = permute(index, np.array(sizes), keys)
    alone = [permute(index[i : i + 1], size, keys[i : i + 1])[0] for i, size in enumerate(sizes)]
    assert together.tolist() == alone


@pytest.mark.parametrize("size", [3, 10, 97])
def test_every_place_is_equally_likely(size: int) -> None:
    """Chi-square of element × place over 3,000 keys; six standard deviations would be chance once in 10⁹."""
    keys = 3_000
    seen = np.zeros((size, size))
    elements = np.tile(np.arange(size), keys)
    np.add.at(seen, (elements, permute(elements, size, np.repeat(np.arange(keys), size))), 1)
    expected = keys / size
    freedom = (size - 1) ** 2
    chi_square = ((seen - expected) ** 2 / expected).sum()
    assert abs(chi_square - freedom) < 6 * np.sqrt(2 * freedom)


def test_neighbours_part() -> None:
    """Positions one apart land anywhere: their distances are those of random pairs (mean n/3)."""
    places = permute(np.arange(10_000), 10_000, 4)
    assert np.abs(np.diff(places)).mean() == pytest.approx(10_000 / 3, rel=0.03)


def test_uniform_fills_the_unit_interval() -> None:
    draws = uniform(key_of(1, np.arange(20_000)), 3)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert np.histogram(draws, 20, (0, 1))[0].std() < 6 * np.sqrt(1_000)
    assert np.corrcoef(draws, uniform(key_of(1, np.arange(20_000)), 4))[0, 1] == pytest.approx(0, abs=0.05)
