"""Shares of a global batch: exact slices, and the shares of ranks of measured speed."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.errors import UsageError
from shardmill.training.order import rank_slice, shares_of_speed


@pytest.mark.parametrize(
    ("rows", "ranks", "shares", "slices"),
    [
        (10, 4, None, [(0, 2), (2, 5), (5, 7), (7, 10)]),
        (10, 4, (1, 1, 1, 1), [(0, 2), (2, 5), (5, 7), (7, 10)]),
        (64, 2, (3, 1), [(0, 48), (48, 64)]),
        (10, 2, (3, 1), [(0, 7), (7, 10)]),
        (10, 3, (5, 3, 2), [(0, 5), (5, 8), (8, 10)]),  # shares that add up to the batch are its rows
        (7, 1, (9,), [(0, 7)]),
    ],
)
def test_slices(rows: int, ranks: int, shares: tuple[int, ...] | None, slices: list[tuple[int, int]]) -> None:
    found = [rank_slice(rows, rank, ranks, shares) for rank in range(ranks)]
    assert [(part.start, part.stop) for part in found] == slices


@pytest.mark.parametrize(
    ("rank", "ranks", "shares", "message"),
    [
        (0, 3, (3, 1), "2 shares for 3 ranks"),
        (0, 2, (3, 0), "whole number of at least 1"),
        (0, 2, (1.5, 1), "whole number of at least 1"),
        (0, 2, (100, 1), "leave rank 0 no row|leave rank 1 no row"),
        (2, 2, None, "ranks count from 0"),
        (1, 1, None, "rank 1 of 1: ranks count from 0 .give num_ranks, the number of all ranks"),
        (-1, 2, (1, 1), "ranks count from 0$"),
    ],
)
def test_wrong_shares_are_refused(
    rank: int, ranks: int, shares: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        rank_slice(1 if shares == (100, 1) else 8, rank, ranks, shares)


@pytest.mark.parametrize(
    ("seconds", "rows", "shares"),
    [
        ([0.01, 0.01], 64, (32, 32)),
        ([0.01, 0.03], 64, (48, 16)),
        ([0.01, 0.03], 10, (8, 2)),  # 8 × 0.01 against 2 × 0.03; (7, 3) would take 0.09
        ([1.0, 1000.0], 8, (7, 1)),  # nobody goes without
        ([2.0, 1.0, 1.0], 5, (1, 2, 2)),
        ([1.0, 1.0], 3, (2, 1)),
        ([5.0], 3, (3,)),
    ],
)
def test_shares_of_speed(seconds: list[float], rows: int, shares: tuple[int, ...]) -> None:
    assert shares_of_speed(seconds, rows) == shares


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=4), st.integers(0, 8))
def test_no_other_shares_are_done_sooner(seconds: list[float], more: int) -> None:
    rows = len(seconds) + more
    found = shares_of_speed(seconds, rows)
    assert sum(found) == rows
    taken = max(share * time for share, time in zip(found, seconds, strict=True))
    others = (way for way in product(range(1, rows + 1), repeat=len(seconds)) if sum(way) == rows)
    best = min(max(np.multiply(way, seconds)) for way in others)
    assert taken == pytest.approx(best, rel=1e-12)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20), st.integers(0, 5000))
def test_shares_of_speed_are_the_rows_themselves(seconds: list[float], more: int) -> None:
    rows, ranks = len(seconds) + more, len(seconds)
    shares = shares_of_speed(seconds, rows)
    slices = [rank_slice(rows, rank, ranks, shares) for rank in range(ranks)]
    assert tuple(part.stop - part.start for part in slices) == shares


@pytest.mark.parametrize(
    ("seconds", "rows", "message"),
    [
        ([], 8, "positive and finite"),
        ([0.1, 0.0], 8, "positive and finite"),
        ([0.1, float("nan")], 8, "positive and finite"),
        ([0.1, float("inf")], 8, "positive and finite"),
        ([0.1, 0.1, 0.1], 2, "at least 3"),
    ],
)
def test_wrong_speeds_are_refused(seconds: list[float], rows: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        shares_of_speed(seconds, rows)
