"""Nothing of `shardmill up` remains, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from shardmill.flows.flow_runs import worker_process
from tests.prefect_server.jobs import held_after_a_block, resume
from tests.prefect_server.server import RunningServer, processes_of, remaining, started_up
from tests.samples.sources.image_folders import write_many_large_images
from tests.samples.waiting import before_its_end, eventually


def flow_processes(server: RunningServer) -> list[psutil.Process]:
    """The processes of the flow runs of a platform."""
    found = processes_of(Path(server.env["SHARDMILL_HOME"]))
    return [process for process in found if worker_process.__name__ in process.cmdline()]


def test_a_run_whose_process_has_just_begun_ends_with_a_killed_up(tmp_path: Path) -> None:
    with started_up(tmp_path, "--no-tensorboard") as up:
        run = up.deployment_run("maintain/maintain", dataset="none")
        # It imports Prefect, then asks the server, which is away by then: for a minute, if nothing ends it.
        before_its_end(lambda: flow_processes(up) or None, lambda: up.has_ended(run))
        os.kill(up.pid, signal.SIGKILL)
        assert remaining(tmp_path / "home") == []


@pytest.mark.slow
def test_a_job_ends_with_a_killed_up(tmp_path: Path) -> None:
    with held_job(tmp_path) as (up, _, tree):
        os.kill(up.pid, signal.SIGKILL)
        resume(tree)  # a stopped process cannot notice that its parent is gone
        assert remaining(tmp_path / "home") == []


@pytest.mark.slow
def test_a_run_is_stopped_in_order_also_if_up_is_asked_twice(tmp_path: Path) -> None:
    with held_job(tmp_path) as (up, run, tree):
        os.kill(up.pid, signal.SIGINT)
        assert eventually(lambda: ignores(up.pid, signal.SIGTERM)), "it stops its services"
        os.kill(up.pid, signal.SIGINT)
        os.kill(up.pid, signal.SIGTERM)
        resume(tree)
        psutil.wait_procs([psutil.Process(up.pid)], timeout=150)
        assert remaining(tmp_path / "home") == []
    with closing(sqlite3.connect(tmp_path / "home" / "prefect" / "prefect.db")) as history:
        (state,) = history.execute("SELECT state_type FROM flow_run WHERE id = ?", [run]).fetchone()
    assert state == "CRASHED", "the run has told the server"


@contextlib.contextmanager
def held_job(folder: Path) -> Iterator[tuple[RunningServer, str, list[psutil.Process]]]:
    """A platform with a run that works, its id, and the processes of its job, which are stopped."""
    source = write_many_large_images(folder / "large", 60)
    with started_up(folder, "--no-tensorboard") as up:
        run = up.deployment_run(
            "prepare/prepare", source=str(source), dataset="large", config={"runner": {"block_images": 16}}
        )
        yield up, run, held_after_a_block(source, up.root / "large", lambda: up.has_ended(run))


def ignores(process_id: int, number: signal.Signals) -> bool:
    """Tell whether a process ignores a signal."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    (mask,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))
    return bool(mask >> (number - 1) & 1)
