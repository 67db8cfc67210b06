"""The pool: it does every number, whatever its processes do, and nothing outlives it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.beam_jobs.config import RunnerConfig
from shardmill.beam_jobs.execution.pool import Pool, files_in_progress
from shardmill.beam_jobs.execution.pool.shares import MemoryBudget
from shardmill.beam_jobs.execution.pool.starting import end_ahead, start_ahead
from shardmill.beam_jobs.execution.pool.supervision import MAX_FAILURES, ItemFailed
from shardmill.beam_jobs.execution.runners import started_processes
from shardmill.beam_jobs.execution.task import recover_fault
from shardmill.infra.errors import ChildDied, CorruptDataError, EnvironmentFault, StorageError
from shardmill.infra.processes.trees import lives
from shardmill.infra.progress import subscribe
from tests.samples.preparing.deeds import Deeds, done, processes

START_SECONDS = 180.0


def outcomes(
    task: Deeds, numbers: int, num_processes: int = 2, budget: MemoryBudget | None = None
) -> list[BaseException | float]:
    """The outcome of each number: its error, or the processor time that it took."""
    pool = Pool(task, num_processes, budget)
    try:
        submitted = [pool.submit(number) for number in range(numbers)]
        return [future.exception(timeout=120) or future.result() for future in submitted]
    finally:
        pool.close()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pids: Sequence[int] | set[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


def test_every_number_is_done_once_by_processes_of_the_pool(tmp_path: Path) -> None:
    assert all(isinstance(one, float) for one in outcomes(Deeds(tmp_path), 40, 3))
    assert done(tmp_path) == list(range(40))
    assert 1 <= len(processes(tmp_path)) <= 3
    assert gone(processes(tmp_path))


def test_processes_that_were_started_ahead_are_used_and_leave_none_behind(tmp_path: Path) -> None:
    start_ahead(4)
    wait_until(lambda: len(forked()) == 4)
    ahead = forked()
    psutil.Process(min(ahead)).kill()
    assert all(isinstance(one, float) for one in outcomes(Deeds(tmp_path), 40, 3))
    assert done(tmp_path) == list(range(40))
    assert processes(tmp_path) <= ahead - {min(ahead)}
    end_ahead()
    wait_until(lambda: gone(ahead))


def test_processes_that_no_task_has_taken_end_also_after_an_error() -> None:
    ahead: set[int] = set()

    def fail() -> None:
        with started_processes(RunnerConfig(processes=2), 8):
            wait_until(lambda: len(forked()) == 2)
            ahead.update(forked())
            raise CorruptDataError("damaged")

    with pytest.raises(CorruptDataError, match="damaged"):
        fail()
    wait_until(lambda: gone(ahead))


def forked() -> set[int]:
    """The processes that run below the fork server of this process."""
    below = [
        child.children() for child in psutil.Process().children() if "forkserver" in str(child.cmdline())
    ]
    return {process.pid for children in below for process in children if lives(process)}


def test_the_lowest_number_that_waits_is_done_first(tmp_path: Path) -> None:
    pool = Pool(Deeds(tmp_path, {9: "hang"}, seconds=0.5), 1)
    try:
        submitted = [pool.submit(9)]
        wait_until(submitted[0].running)
        submitted += [pool.submit(number) for number in (4, 1, 7, 0)]
        for future in submitted:
            future.result(timeout=120)
    finally:
        pool.close()
    when = sorted((path.name.split("-") for path in tmp_path.glob("done-*")), key=lambda name: int(name[3]))
    assert [int(number) for _, number, *_ in when] == [9, 0, 1, 4, 7]


@pytest.mark.parametrize("deed", ["abort", "kill", "exit", "leave", "hang", "grow", "run_short"])
def test_a_file_that_ends_its_process_costs_that_file(deed: str, tmp_path: Path) -> None:
    found = outcomes(Deeds(tmp_path, {3: deed}, seconds=0.5), 8)
    assert all(isinstance(one, float) for one in found), found
    assert done(tmp_path) == list(range(8)), "each number once, also those of the other process"
    assert [path.name for path in tmp_path.glob("verdict-*")] == ["verdict-3.jpg"]
    assert gone(processes(tmp_path))


def test_processes_that_die_with_all_memory_leave_it_to_the_others(tmp_path: Path) -> None:
    deeds = dict.fromkeys(range(9), "take_memory") | dict.fromkeys((0, 4), "die_with_memory")
    found = outcomes(Deeds(tmp_path, deeds), 9, 3, MemoryBudget(tmp_path / "budget", 4))
    assert all(isinstance(one, float) for one in found), found
    assert done(tmp_path) == list(range(9))
    assert {path.name for path in tmp_path.glob("verdict-*")} == {"verdict-0.jpg", "verdict-4.jpg"}


def test_two_hostile_files_at_a_time(tmp_path: Path) -> None:
    found = outcomes(Deeds(tmp_path, {0: "abort", 1: "hang", 5: "kill"}, seconds=0.5), 9)
    assert all(isinstance(one, float) for one in found), found
    assert done(tmp_path) == list(range(9))


def test_a_number_whose_file_is_harmless_alone_is_done_again(tmp_path: Path) -> None:
    said: list[Any] = []
    unsubscribe = subscribe(said.append)
    try:
        found = outcomes(Deeds(tmp_path, {2: "abort"}, guilty=False, once=True), 5)
    finally:
        unsubscribe()
    assert all(isinstance(one, float) for one in found), found
    assert done(tmp_path) == list(range(5))
    assert any("ended by SIGABRT while processing 2.jpg" in event["message"] for event in said)


def test_a_number_that_fails_again_and_again_is_given_up(tmp_path: Path) -> None:
    found = outcomes(Deeds(tmp_path, {2: "abort"}, guilty=False), 5)
    error = found.pop(2)
    assert isinstance(error, ChildDied)
    assert "ended by SIGABRT 3 times in a row" in error.message
    assert "2.jpg" in error.message
    assert "runner.processes=1" in str(error.remedy)
    assert len(list(tmp_path.glob("try-2-*"))) == MAX_FAILURES
    assert done(tmp_path) == [0, 1, 3, 4]


def test_memory_that_stays_short_is_an_error_of_the_machine(tmp_path: Path) -> None:
    (error,) = outcomes(Deeds(tmp_path, {0: "run_short"}, guilty=False), 1)
    assert isinstance(error, EnvironmentFault)
    assert "memory ran out 3 times in a row, last while processing 0.jpg" in error.message


def test_errors_of_ours_and_defects_come_back(tmp_path: Path) -> None:
    ours, fine, defect = outcomes(Deeds(tmp_path, {0: "fail", 2: "defect"}), 3)
    assert isinstance(ours, ItemFailed)
    fault = recover_fault(ours)
    assert isinstance(fault, StorageError)
    assert (fault.message, fault.remedy) == ("it cannot be written", "make room")
    assert isinstance(fine, float)
    assert isinstance(defect, ItemFailed)
    assert "KeyError: 'no such key'" in str(defect)
    assert recover_fault(defect) is None


def test_a_closed_pool_leaves_nothing(tmp_path: Path) -> None:
    pool = Pool(Deeds(tmp_path, {0: "hang", 1: "sleep"}), 2)
    submitted: list[Future[float]] = [pool.submit(number) for number in range(4)]
    wait_until(lambda: len(list(tmp_path.glob("try-*"))) == 2)
    pool.close()
    assert gone(processes(tmp_path))
    assert all(future.cancelled() or future.exception() for future in submitted)
    assert done(tmp_path) == []


def test_files_of_a_number_are_counted_while_it_is_done(tmp_path: Path) -> None:
    pool = Pool(Deeds(tmp_path, {5: "count"}), 2)
    try:
        pool.submit(5)
        assert pool.submit(6).result(timeout=120) >= 0.0
        wait_until(lambda: files_in_progress("Deeds") == {5: 3, 6: 0})
        assert files_in_progress("EncodeBlocks") == {}
    finally:
        pool.close()
    assert files_in_progress("Deeds") == {}


def job(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.samples.preparing.deeds", *words[:2], str(folder), *words[2:]]


def test_a_job_runs_its_numbers_through_beam(tmp_path: Path) -> None:
    done_process = subprocess.run(
        job(tmp_path, "12", "3", "4=abort"), capture_output=True, text=True, timeout=120, check=False
    )
    assert done_process.returncode == 0, done_process.stderr
    assert done(tmp_path) == list(range(12))
    assert float(done_process.stdout) >= 0.0


def test_an_error_ends_the_job_as_itself(tmp_path: Path) -> None:
    failed = subprocess.run(
        job(tmp_path, "6", "2", "3=fail"), capture_output=True, text=True, timeout=120, check=False
    )
    assert failed.returncode == StorageError.exit_code, failed.stderr
    assert "error: it cannot be written" in failed.stderr
    assert "remedy: make room" in failed.stderr
    assert gone(processes(tmp_path))


def test_nothing_outlives_a_job_that_is_killed(tmp_path: Path) -> None:
    """Not even a process that hangs in C and holds the interpreter's lock."""
    with subprocess.Popen(job(tmp_path, "3", "3", "0=hang", "1=hang", "2=sleep")) as process:
        wait_until(lambda: len(list(tmp_path.glob("try-*"))) == 3)
        tree = psutil.Process(process.pid).children(recursive=True)
        assert processes(tmp_path) < {one.pid for one in tree}, "and the server that they are forked from"
        process.kill()
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert alive == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_does_not_wait_for_numbers_without_an_end(tmp_path: Path, number: signal.Signals) -> None:
    command = job(tmp_path, "3", "2", "0=hang", "1=hang")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(list(tmp_path.glob("try-*"))) == 2)
        tree = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "error: stopped on request\n" in said
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert alive == []
