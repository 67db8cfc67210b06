"""Threads beyond the slots wait their turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from beam_jobs import slots


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = slots._slots
    yield
    slots._slots = before


def most_at_once(threads: int, turns: int = 5) -> int:
    """How many of so many threads held a slot at the same time."""
    lock = threading.Lock()
    inside: list[int] = [0, 0]

    def work() -> None:
        for _ in range(turns):
            with slots.computing():
                with lock:
                    inside[0] += 1
                    inside[1] = max(inside)
                time.sleep(0.002)
                with lock:
                    inside[0] -= 1

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)
        assert not worker.is_alive()
    return inside[1]


@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_no_more_compute_than_there_are_slots(allowed: int) -> None:
    slots.allow_at_once(allowed)
    assert most_at_once(6) == allowed


def test_without_a_limit_all_compute() -> None:
    slots._slots = None
    assert most_at_once(4) > 1


def test_a_slot_is_free_again_after_an_error() -> None:
    slots.allow_at_once(1)
    with pytest.raises(ValueError, match="odd"), slots.computing():
        raise ValueError("odd")
    assert most_at_once(2) == 1
