"""The pool of processes: it does the work, passes on what is raised, and takes the job along when one dies.

A pool forks the process that it is in, so each test has a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path

import psutil
import pytest

from beam_jobs.pool.forking import _Worker
from infra.errors import StorageError
from tests.samples.pooled import ATTENDANCE

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="pools of forked processes are for Linux only"
)


def job(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.samples.pooled", str(folder), *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(job(folder, *arguments), capture_output=True, text=True, timeout=120, check=False)


def pids(folder: Path) -> set[int]:
    return {int(path.read_text()) for path in folder.glob(ATTENDANCE + "*")}


def test_every_number_is_worked_on_once_by_processes_of_their_own(tmp_path: Path) -> None:
    done = run(tmp_path, "--numbers", "40", "--processes", "3")
    assert done.returncode == 0, done.stderr
    assert sorted(int(path.name) for path in tmp_path.glob("[0-9]*")) == list(range(40))
    workers = {int(path.read_text()) for path in tmp_path.glob("[0-9]*")}
    assert 1 < len(workers) <= 3
    assert int(done.stdout.split()[0]) not in workers
    assert float(done.stdout.split()[1]) > 0.0, "the processor time of the pool"
    assert not any(psutil.pid_exists(pid) for pid in workers)


def test_without_a_pool_the_work_is_done_in_place(tmp_path: Path) -> None:
    done = run(tmp_path, "--numbers", "5", "--processes", "0")
    assert {int(path.read_text()) for path in tmp_path.glob("[0-9]*")} == {int(done.stdout.split()[0])}


def test_an_error_of_ours_comes_back_whole(tmp_path: Path) -> None:
    done = run(tmp_path, "--numbers", "6", "--processes", "2", "--fail", "3")
    assert done.returncode == StorageError.exit_code, done.stderr
    assert "error: number 3 cannot be written" in done.stderr
    assert "remedy: make room" in done.stderr


def test_a_defect_shows_where_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, "--numbers", "6", "--processes", "2", "--defect", "3")
    assert done.returncode == 1
    assert "KeyError: 'no such number: 3'" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_the_job_dies_as_its_process_died(tmp_path: Path, number: signal.Signals) -> None:
    done = run(tmp_path, "--numbers", "6", "--processes", "2", "--signal", str(int(number)))
    assert done.returncode == -number


def test_the_job_exits_as_its_process_did(tmp_path: Path) -> None:
    assert run(tmp_path, "--numbers", "6", "--processes", "2", "--exit", "7").returncode == 7


def test_nothing_outlives_a_job_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(job(tmp_path, "--numbers", "3", "--processes", "3", "--sleep")) as process:
        deadline = time.monotonic() + 60
        while len(workers := pids(tmp_path)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(pid) for pid in workers):
        assert time.monotonic() < deadline, "a process of the pool goes on without its job"
        time.sleep(0.02)


def test_a_stop_does_not_wait_for_work_that_has_no_end(tmp_path: Path) -> None:
    command = job(tmp_path, "--numbers", "3", "--processes", "2", "--sleep")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while len(workers := pids(tmp_path)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "error: stopped on request\n" in said
    assert not any(psutil.pid_exists(pid) for pid in workers)


# A signal arrives whenever a process was forked, where libraries have their functions called.
_STOPPED_AT_FORKS = """
import os, signal
from beam_jobs.pool import pool_processes
from infra.process import run_main

def main():
    os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGTERM))
    with pool_processes(2):
        print("working")
    return 0

raise SystemExit(run_main(main))
"""


def test_a_stop_while_processes_are_forked_is_heeded_once() -> None:
    command = [sys.executable, "-c", _STOPPED_AT_FORKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert done.stderr.count("error:") == 1


def test_all_who_wait_for_a_process_learn_how_it_ended() -> None:
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", "raise SystemExit(7)"])
    worker = _Worker(pid, Pipe()[0])
    assert [worker.wait(), worker.wait()] == [7, 7]
