"""The times at which new files of an inbox are taken up, by a clock of the test."""

from __future__ import annotations

import pytest

from shardmill.flows.scheduling.source_state import Arrivals, Batching
from shardmill.infra.storage.filesystem import FileEntry

BATCHING = Batching(settle_seconds=10, files=3, within_seconds=60)


def listing(*files: tuple[str, int]) -> dict[str, FileEntry]:
    """Files of these names and sizes; the time of change follows the size."""
    return {name: FileEntry(name, size, size * 10**9) for name, size in files}


def taken(*observed: tuple[float, dict[str, FileEntry]]) -> list[int]:
    arrivals = Arrivals(BATCHING)
    return [arrivals.observe(files, now) for now, files in observed]


A, B, C = ("a.jpg", 1), ("b.jpg", 1), ("c.jpg", 1)


@pytest.mark.parametrize(
    ("observed", "batches"),
    [
        pytest.param([(0, ()), (100, ())], [0, 0], id="an empty inbox"),
        pytest.param([(0, (A, B, C)), (9, (A, B, C)), (10, (A, B, C))], [0, 0, 3], id="a full batch"),
        pytest.param([(0, (A,)), (59, (A,)), (60, (A,))], [0, 0, 1], id="a part of one, in time"),
        pytest.param(
            [
                (0, (A, B, C)),
                (5, (A, B, ("c.jpg", 2))),
                (10, (A, B, ("c.jpg", 2))),
                (15, (A, B, ("c.jpg", 2))),
            ],
            [0, 0, 0, 3],
            id="a file that grows settles later",
        ),
        pytest.param([(0, (A,)), (60, (A,)), (61, (A,)), (200, (A,))], [0, 1, 0, 0], id="taken up once"),
        pytest.param(
            [(0, (A,)), (60, (A,)), (61, (("a.jpg", 2),)), (121, (("a.jpg", 2),))],
            [0, 1, 0, 1],
            id="a file that changes is new",
        ),
        pytest.param(
            [(0, (A,)), (60, (A,)), (70, ()), (80, ())], [0, 1, 0, 0], id="a file that goes is no news"
        ),
        pytest.param(
            [(0, (A,)), (60, (A,)), (70, ()), (80, (A,)), (139, (A,)), (140, (A,))],
            [0, 1, 0, 0, 0, 0],
            id="unless a batch was due meanwhile, it is known when it comes back",
        ),
        pytest.param(
            [(now, (A, *(("x.jpg", now + 1),))) for now in range(0, 62, 2)],
            [0] * 30 + [1],
            id="a file that never settles holds up nothing",
        ),
    ],
)
def test_files_are_taken_up_when_they_stand_still(
    observed: list[tuple[float, tuple[tuple[str, int], ...]]], batches: list[int]
) -> None:
    assert taken(*((now, listing(*files)) for now, files in observed)) == batches


def test_a_batch_whose_run_did_not_start_is_taken_up_at_once() -> None:
    arrivals = Arrivals(BATCHING)
    files = listing(A, B, C)
    assert [arrivals.observe(files, now) for now in (0, 10)] == [0, 3]
    arrivals.give_back()
    assert [arrivals.observe(files, now) for now in (12, 22)] == [3, 0]
