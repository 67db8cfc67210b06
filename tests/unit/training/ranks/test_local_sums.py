"""Sums over the ranks of one machine: threads and processes stand in for ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from shardmill.training.ranks.local_sums import LocalSums, Patience, PeerLost, connected

PATIENCE = Patience(stopped_seconds=1.0, silent_seconds=60.0)


class Meeting:
    """The exchange of values between ranks in threads, as by ``RankGroup.all_values``."""

    def __init__(self, num_ranks: int) -> None:
        self._values: list[Any] = [None] * num_ranks
        self._barrier = threading.Barrier(num_ranks)

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self._values[rank] = value
        self._barrier.wait(60)
        found = list(self._values)
        self._barrier.wait(60)
        return found


class ThreadRank:
    def __init__(self, meeting: Meeting, rank: int, num_ranks: int, pid: int | None = None) -> None:
        self._meeting, self.rank, self.num_ranks, self._pid = meeting, rank, num_ranks, pid

    def all_values(self, value: Any) -> list[Any]:
        if self._pid is not None and value is not None:
            value = [value[0], self._pid]
        return self._meeting.exchange(self.rank, value)


def on_ranks(
    num_ranks: int, do: Callable[[int, LocalSums], Any], patience: Patience = PATIENCE, pid: int | None = None
) -> list[Any]:
    """Call ``do(rank, sums)`` on connected ranks, each a thread; return results, or the errors raised."""
    meeting = Meeting(num_ranks)

    def one(rank: int) -> Any:
        with connected(ThreadRank(meeting, rank, num_ranks, pid), patience) as sums:
            return do(rank, sums)

    with ThreadPoolExecutor(num_ranks) as pool:
        waiting = [pool.submit(one, rank) for rank in range(num_ranks)]
        return [done.exception() or done.result() for done in waiting]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_all_ranks_get_the_same_sum_bit_for_bit(num_ranks: int) -> None:
    parts = np.random.default_rng(0).normal(size=(num_ranks, 20, 5, 3)).astype(np.float32)

    def do(rank: int, sums: LocalSums) -> list[np.ndarray]:
        return [sums.total(part) for part in parts[rank]]

    of_ranks = on_ranks(num_ranks, do)
    for totals in of_ranks:
        assert np.array_equal(totals, of_ranks[0])
        assert totals[0].dtype == np.float32
    assert np.allclose(of_ranks[0], parts.sum(0), rtol=1e-6, atol=1e-6)


def test_a_rank_that_ends_is_noticed_at_once() -> None:
    def do(rank: int, sums: LocalSums) -> None:
        sums.total(np.ones(3, np.float32))
        if rank == 0:
            sums.total(np.ones(3, np.float32))

    lost, ended = on_ranks(2, do)
    assert isinstance(lost, PeerLost)
    assert "rank 1" in str(lost)
    assert ended is None


def test_ranks_that_add_up_different_things_say_so() -> None:
    errors = on_ranks(2, lambda rank, sums: sums.total(np.ones(3 + rank, np.float32)))
    assert any("adds up" in str(error) for error in errors)


def test_a_rank_that_sends_nothing_is_given_up() -> None:
    lost = on_ranks(2, _only_the_first(), Patience(stopped_seconds=60.0, silent_seconds=0.5))[0]
    assert isinstance(lost, PeerLost)
    assert "does not answer" in str(lost)


def test_a_rank_whose_process_is_stopped_is_given_up_sooner() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        os.kill(other.pid, signal.SIGSTOP)
        started = time.monotonic()
        lost = on_ranks(2, _only_the_first(), PATIENCE, other.pid)[0]
        other.kill()
    assert isinstance(lost, PeerLost)
    assert "does not answer" in str(lost)
    assert time.monotonic() - started < PATIENCE.silent_seconds


def _only_the_first() -> Callable[[int, LocalSums], None]:
    gave_up = threading.Event()

    def do(rank: int, sums: LocalSums) -> None:
        if rank == 1:
            gave_up.wait(60)
            return
        try:
            sums.total(np.ones(3, np.float32))
        finally:
            gave_up.set()

    return do
