"""Shares of memory: never more than the budget at a time, whatever ends the processes that hold them."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shardmill.beam_jobs.execution.pool.shares import (
    SMALL_BYTES,
    UNIT_BYTES,
    MemoryBudget,
    memory_for,
    open_budget,
)
from shardmill.infra.progress import subscribe

# Takes shares of so many units, each for so many seconds, and writes when it had them.
TAKER = """
import sys, time
from pathlib import Path
from shardmill.beam_jobs.execution.pool.shares import UNIT_BYTES, MemoryBudget, memory_for, open_budget
path, total, out, *shares = sys.argv[1:]
open_budget(MemoryBudget(Path(path), int(total)))
with open(out, "a") as file:
    for share in shares:
        units, seconds = share.split(":")
        with memory_for(int(units) * UNIT_BYTES):
            file.write(f"{units} {time.monotonic()} ")
            file.flush()
            time.sleep(float(seconds))
            file.write(f"{time.monotonic()}\\n")
"""


class Taker:
    """A process that takes shares one after the other."""

    def __init__(self, folder: Path, total: int, *shares: str) -> None:
        self.out = folder / f"taken-{random.getrandbits(40)}"
        argv = [sys.executable, "-c", TAKER, str(folder / "budget"), str(total), str(self.out), *shares]
        self.process = subprocess.Popen(argv)

    def taken(self) -> list[list[float]]:
        """Units, begin and end of each share; a share that is held, or was at a kill, has no end."""
        lines = self.out.read_text().splitlines() if self.out.exists() else []
        return [[float(word) for word in line.split()] for line in lines]


@contextmanager
def ended(*takers: Taker) -> Iterator[None]:
    try:
        yield
    finally:
        for taker in takers:
            taker.process.kill()
            taker.process.wait()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def someone_waits(folder: Path) -> bool:
    """Whether a process collects units: the first byte of the file is locked."""
    with (folder / "budget").open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError):
            return True
    return False


def test_a_killed_process_gives_its_share_back_and_the_next_in_the_queue_takes_it(tmp_path: Path) -> None:
    holder = Taker(tmp_path, 8, "6:600")
    with ended(holder):
        wait_until(holder.taken)
        second = Taker(tmp_path, 8, "5:0.01")
        with ended(second):
            wait_until(lambda: someone_waits(tmp_path))
            assert second.taken() == []
            os.kill(holder.process.pid, signal.SIGKILL)
            wait_until(lambda: second.process.poll() is not None)
            ((units, _, _),) = second.taken()
            assert (units, second.process.returncode) == (5, 0)


def test_a_process_that_dies_while_it_waits_holds_nobody_up(tmp_path: Path) -> None:
    holder = Taker(tmp_path, 4, "3:600")
    with ended(holder):
        wait_until(holder.taken)
        waiting = Taker(tmp_path, 4, "4:600")
        with ended(waiting):
            wait_until(lambda: someone_waits(tmp_path))
            time.sleep(0.1)  # it has the unit that is left
        later = Taker(tmp_path, 4, "3:0.01")
        with ended(later):
            os.kill(holder.process.pid, signal.SIGKILL)
            wait_until(lambda: later.process.poll() is not None)
            assert len(later.taken()) == 1


def test_shares_never_exceed_the_budget_and_all_are_had(tmp_path: Path) -> None:
    total, chance = 6, random.Random(3)
    takers = [
        Taker(
            tmp_path, total, *(f"{chance.choice((3, 4, 6, 60))}:{chance.uniform(0, 0.03)}" for _ in range(8))
        )
        for _ in range(5)
    ]
    with ended(*takers):
        victim = takers[0]
        wait_until(victim.taken)
        os.kill(victim.process.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        for taker in takers[1:]:
            assert taker.process.wait(60) == 0
    shares = [share for taker in takers for share in taker.taken()]
    assert all(len(taker.taken()) == 8 for taker in takers[1:])
    held = [(min(total, share[0]), share[1], share[2] if len(share) > 2 else killed_at) for share in shares]
    for _, moment, _ in held:
        assert sum(units for units, begin, end in held if begin <= moment < end) <= total


def test_small_images_wait_for_nothing(tmp_path: Path) -> None:
    holder = Taker(tmp_path, 2, "60:600")
    with ended(holder):
        wait_until(holder.taken)
        open_budget(MemoryBudget(tmp_path / "budget", 2))
        with memory_for(SMALL_BYTES):
            assert holder.process.poll() is None


def test_the_budget_of_a_machine_is_half_of_its_free_memory() -> None:
    from shardmill.infra.processes.trees import free_memory_bytes

    units = MemoryBudget.of_machine().units
    assert 0.5 < units * UNIT_BYTES / (free_memory_bytes() / 2) < 2


def test_without_a_file_of_its_own_images_are_decoded_all_the_same_and_a_warning_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "budget").symlink_to(tmp_path / "elsewhere")  # of somebody else
    said: list[str] = []
    unsubscribe = subscribe(lambda event: said.append(event["message"]))
    try:
        open_budget(MemoryBudget(tmp_path / "budget", 1))
        with memory_for(1 << 40):
            pass
    finally:
        unsubscribe()
    assert "without a common limit of memory" in said[0]
    assert not (tmp_path / "elsewhere").exists()
