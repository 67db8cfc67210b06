"""The rows that each rank takes: given by a person, or by measured speeds."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from shardmill.infra.errors import ConfigError
from shardmill.training.run.sharing.division import (
    division_of_speed,
    equal_division,
    given_division,
    wants_measuring,
)


@pytest.mark.parametrize(
    ("shares", "size", "unit", "rows"),
    [
        ([3, 1], 64, 1, (48, 16)),
        ([3, 1], 8, 1, (6, 2)),
        ([2, 1], 16, 1, (10, 6)),
        ([2, 1], 16, 2, (10, 6)),
        ([2, 1], 16, 4, (8, 8)),
        ([2, 1], 15, 2, (10, 5)),  # 15 has no units of 2
        ([1, 1, 2], 8, 2, (2, 2, 4)),
    ],
)
def test_given_shares(shares: list[int], size: int, unit: int, rows: tuple[int, ...]) -> None:
    division = given_division(shares, size, len(shares), unit)
    assert division.rows == rows
    assert [division.slice_of(rank).stop for rank in range(len(rows))][-1] == size
    assert division.slice_of(1) == slice(rows[0], rows[0] + rows[1])


@pytest.mark.parametrize(
    ("shares", "num_ranks", "message"),
    [([3, 1], 3, r"ranks.shares = \[3, 1\]: 2 shares for 3 ranks"), ([1, 99], 2, "leave rank 0 no row")],
)
def test_shares_that_do_not_fit(shares: list[int], num_ranks: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        given_division(shares, 8, num_ranks)


@pytest.mark.parametrize(
    ("seconds", "size", "unit", "rows"),
    [
        ((1.0, 3.0), 64, 1, (48, 16)),
        ((1.0, 1.05), 64, 1, (32, 32)),  # not worth it
        ((1.0, 2.0), 2, 1, (1, 1)),
        ((1.0, 1000.0), 8, 1, (7, 1)),  # each rank keeps a row
        ((1.0, 3.0), 64, 8, (48, 16)),
        ((1.0, 1.0), 24, 8, (8, 16)),  # parts of 12 are no multiples of 8
        ((0.01, 0.02, 0.01), 50, 1, (20, 10, 20)),
    ],
)
def test_measured_shares(seconds: tuple[float, ...], size: int, unit: int, rows: tuple[int, ...]) -> None:
    division = division_of_speed(seconds, size, unit)
    assert division.rows == rows
    assert division.seconds_per_example == seconds


@pytest.mark.parametrize(
    ("shares", "devices", "measured"),
    [
        ("auto", ["L4", "L4"], False),
        ("auto", ["L4", "H100"], True),
        ("measured", ["L4", "L4"], True),
        ("equal", ["L4", "H100"], False),
        ([3, 1], ["L4", "H100"], False),
    ],
)
def test_devices_of_one_name_count_as_equally_fast(
    shares: str | list[int], devices: list[str], measured: bool
) -> None:
    assert wants_measuring(shares, devices) is measured


@pytest.mark.parametrize(
    ("size", "num_ranks", "unit", "rows"),
    [
        (10, 4, 1, (2, 3, 2, 3)),
        (512, 3, 2, (170, 170, 172)),
        (16, 2, 4, (8, 8)),
        (10, 4, 4, (2, 3, 2, 3)),  # the unit does not divide the global batch
        (4, 2, 4, (2, 2)),  # one rank would have no rows
    ],
)
def test_equal_parts_differ_by_a_unit_at_most(
    size: int, num_ranks: int, unit: int, rows: tuple[int, ...]
) -> None:
    assert equal_division(size, num_ranks, unit).rows == rows
