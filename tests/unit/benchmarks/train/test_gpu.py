"""The pure parts of the benchmark of GPUs: which trainings it makes, and its table."""

from __future__ import annotations

import pytest

from tests.benchmarks.train.gpu import MIB, Case, Row, cases, lines


@pytest.mark.parametrize(
    ("num_devices", "counts"), [(1, [1]), (2, [1, 2, 2]), (3, [1, 2, 2, 3, 3]), (8, [1, 2, 2, 4, 4, 8, 8])]
)
def test_one_device_then_more_in_one_process_and_by_ranks(num_devices: int, counts: list[int]) -> None:
    found = list(cases(num_devices))
    assert [case.num_devices for case in found] == counts
    assert [case.by_ranks for case in found] == [False, *[False, True] * (len(counts) // 2)]


def test_pytorch_has_a_process_per_device_and_xla_one_device() -> None:
    assert list(cases(2, framework="torch")) == [Case(1, by_ranks=False), Case(2, by_ranks=True)]
    assert list(cases(8, xla=True)) == [Case(1, by_ranks=False)]


def test_scaling_is_beside_one_device() -> None:
    rows = [
        Row(Case(1, by_ranks=False), 100.0, 0.01, 50 * MIB),
        Row(Case(4, by_ranks=True), 360.0, 0.25, 60 * MIB),
    ]
    head, one, four = lines(rows)
    assert head.split() == ["devices", "images/s", "input", "wait", "scaling", "peak", "memory"]
    assert one.split() == ["1", "in", "one", "process", "100", "1.0%", "100%", "50", "MiB"]
    assert four.split() == ["4", "in", "4", "processes", "360", "25.0%", "90%", "60", "MiB"]
