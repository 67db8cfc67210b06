"""The numbers of workers to measure, and the one to propose."""

from __future__ import annotations

import pytest

from shardmill.training.profiling.workers import WorkerRate, candidates, propose


@pytest.mark.parametrize(
    ("most", "numbers"),
    [(1, [0, 1]), (2, [0, 1, 2]), (6, [0, 1, 2, 4, 6]), (16, [0, 1, 2, 4, 8, 16])],
)
def test_candidates(most: int, numbers: list[int]) -> None:
    assert candidates(most) == numbers


@pytest.mark.parametrize(
    ("rates", "number", "reason"),
    [
        ([500, 400, 790, 810], 2, "790 images/s, nearly as fast as 4 workers (810)"),
        ([500, 400, 700, 1810], 4, "1,810 images/s, the fastest"),
        ([5000, 400, 300, 200], 1, "400 images/s, the fastest"),
    ],
)
def test_the_fewest_workers_that_are_fast_are_proposed(rates: list[int], number: int, reason: str) -> None:
    measured = [WorkerRate(workers, rate, 0.1) for workers, rate in zip([0, 1, 2, 4], rates, strict=True)]
    found = propose(measured)
    assert (found.num_workers, found.reason) == (number, reason)
