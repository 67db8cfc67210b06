"""Nothing of `shardmill up` remains, however it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from flows.flow_runs.jobs import flow_process
from tests.prefect_server.jobs import held_after_a_block, resume
from tests.prefect_server.server import RunningServer, processes_of, remaining, started_up
from tests.samples.image_folders import write_many_large_images
from tests.samples.waiting import before_its_end


def flow_processes(server: RunningServer) -> list[psutil.Process]:
    """The processes of the flow runs of a platform."""
    found = processes_of(Path(server.env["SHARDMILL_HOME"]))
    return [process for process in found if flow_process.__name__ in process.cmdline()]


def test_a_run_whose_process_has_just_begun_ends_with_a_killed_up(tmp_path: Path) -> None:
    with started_up(tmp_path, "--no-tensorboard") as up:
        run = up.deployment_run("maintain/maintain", dataset="none")
        # It imports Prefect, then asks the server, which is away by then: for a minute, if nothing ends it.
        before_its_end(lambda: flow_processes(up) or None, lambda: up.has_ended(run))
        os.kill(up.pid, signal.SIGKILL)
        assert remaining(tmp_path / "home") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_job_ends_with_up(tmp_path: Path, number: signal.Signals) -> None:
    source = write_many_large_images(tmp_path / "large", 60)
    with started_up(tmp_path, "--no-tensorboard") as up:
        run = up.deployment_run(
            "prepare/prepare", source=str(source), dataset="large", config={"runner": {"block_images": 16}}
        )
        tree = held_after_a_block(source, up.root / "large", lambda: up.has_ended(run))
        os.kill(up.pid, number)
        resume(tree)  # a stopped process cannot notice that its parent is gone
        psutil.wait_procs([psutil.Process(up.pid)], timeout=150)
        assert remaining(tmp_path / "home") == []
