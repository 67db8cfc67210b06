"""A killed or suspended run is marked soon, nothing of it is left, and the next run continues its work."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.prefect_server.jobs import FAKE_JOB, fake_prepare, held_after_a_block, resume, wait_for_text
from tests.prefect_server.server import RunningServer
from tests.samples.sources.image_folders import write_many_large_images
from tests.samples.waiting import before_its_end, under_load

NUM_LARGE = 60
SMALL_BLOCKS = {"runner": {"block_images": 16}}
_GONE_SECONDS = 10
_MARKED_SECONDS = 120
# A flow of somebody else, with a run of Shardmill inside it.
_NIGHTLY = """
import sys
from prefect import flow
from shardmill.flows.flow_runs import jobs
jobs.PROMOTE = (sys.executable, sys.argv[1], "waits")
from shardmill.flows.promote import promote

@flow
def nightly():
    promote("inside")

nightly()
"""


def automatic_run(server: RunningServer, deployment: str, **parameters: Any) -> str:
    """Start a deployment as an inbox does; the id of the flow run."""
    found = server.get(f"/deployments/name/{deployment}")
    run = server.post(
        f"/deployments/{found['id']}/create_flow_run",
        parameters=parameters,
        tags=["automatic"],
        state={"type": "SCHEDULED"},
    )
    return str(run["id"])


def unfinished_tasks(server: RunningServer, run: str) -> list[str]:
    """The names of the tasks of a run that have not ended."""
    found = server.post("/task_runs/filter", flow_runs={"id": {"any_": [run]}}, limit=50)
    return [task["name"] for task in found if task["state_type"] in ("RUNNING", "PENDING")]


@pytest.mark.slow
def test_a_killed_automatic_run_is_marked_and_started_again_once(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_many_large_images(tmp_path / "large", NUM_LARGE)
    run = automatic_run(
        shardmill_up, "prepare/prepare", source=str(source), dataset="reaped", config=SMALL_BLOCKS
    )
    tree = held_after_a_block(source, shardmill_up.root / "reaped", lambda: shardmill_up.has_ended(run))
    flow_process = next(
        process.parent() for process in tree if "shardmill.beam_jobs.prepare" in process.cmdline()
    )
    assert flow_process is not None
    flow_process.kill()
    killed = time.monotonic()
    resume(tree)

    assert not psutil.wait_procs(tree, timeout=under_load(_GONE_SECONDS))[1]
    assert shardmill_up.wait(run, timeout=_MARKED_SECONDS)["state_type"] == "CRASHED"
    assert time.monotonic() - killed < under_load(_MARKED_SECONDS)

    def again() -> list[dict[str, Any]]:
        found = shardmill_up.post("/flow_runs/filter", flow_runs={"name": {"any_": ["prepare-reaped"]}})
        return [other for other in found if other["id"] != run]

    assert shardmill_up.comes_true(lambda: bool(again()), _MARKED_SECONDS)
    (second,) = again()
    assert set(second["tags"]) >= {"automatic", "restarted"}
    assert shardmill_up.wait(second["id"])["state_type"] == "COMPLETED", shardmill_up.logs(second["id"])
    version = Catalog(shardmill_up.root).open("reaped@1")
    assert version.manifest.accounting.num_records == NUM_LARGE
    assert verify(version).problems == []
    assert shardmill_up.comes_true(lambda: unfinished_tasks(shardmill_up, run) == [], _MARKED_SECONDS)
    assert len(again()) == 1, "once"


def test_a_killed_command_is_marked_by_the_platform(shardmill_up: RunningServer, tmp_path: Path) -> None:
    environment = {**shardmill_up.env, "FAKE_JOB_MARKER": str(tmp_path / "pids")}
    with subprocess.Popen(fake_prepare("waits", tmp_path, "reaped-command"), env=environment) as process:
        wait_for_text(tmp_path / "pids", process)
        run = before_its_end(
            lambda: shardmill_up.find_run("prepare-reaped-command", "RUNNING"),
            lambda: process.poll() is not None,
        )
        tree = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert not psutil.wait_procs(tree, timeout=under_load(_GONE_SECONDS))[1]
    assert shardmill_up.wait(run["id"], timeout=_MARKED_SECONDS)["state_type"] == "CRASHED"
    assert shardmill_up.comes_true(lambda: unfinished_tasks(shardmill_up, run["id"]) == [], _MARKED_SECONDS)


def test_a_run_inside_a_killed_run_ends_with_its_tasks(shardmill_up: RunningServer, tmp_path: Path) -> None:
    program, started = tmp_path / "nightly.py", tmp_path / "pids"
    program.write_text(_NIGHTLY)
    environment = {
        **shardmill_up.env,
        "PREFECT_API_URL": shardmill_up.api_url,
        "FAKE_JOB_MARKER": str(started),
    }
    command = [sys.executable, str(program), str(FAKE_JOB)]
    with subprocess.Popen(command, env=environment) as process:
        wait_for_text(started, process)
        inside = shardmill_up.run_named("promote-inside")
        process.kill()
    parent = shardmill_up.get(f"/task_runs/{inside['parent_task_run_id']}")["flow_run_id"]
    shardmill_up.post(f"/flow_runs/{parent}/set_state", state={"type": "CRASHED"}, force=True)
    assert shardmill_up.wait(inside["id"], timeout=_MARKED_SECONDS)["state_type"] == "CRASHED"
    assert shardmill_up.comes_true(
        lambda: unfinished_tasks(shardmill_up, inside["id"]) == [], _MARKED_SECONDS
    )


@pytest.mark.slow
def test_a_suspended_run_of_the_worker_ends_and_can_go_on(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_many_large_images(tmp_path / "large", NUM_LARGE)
    parameters = {"source": str(source), "dataset": "suspended", "config": SMALL_BLOCKS}
    run = shardmill_up.deployment_run("prepare/prepare", **parameters)
    tree = held_after_a_block(source, shardmill_up.root / "suspended", lambda: shardmill_up.has_ended(run))
    shardmill_up.post(f"/flow_runs/{run}/set_state", state={"type": "PAUSED", "name": "Suspended"})
    assert not psutil.wait_procs(tree, timeout=under_load(20))[1]
    assert shardmill_up.comes_true(lambda: shardmill_up.has_ended(run))
    assert shardmill_up.get(f"/flow_runs/{run}")["state_type"] == "CANCELLED"
    again = shardmill_up.deployment_run("prepare/prepare", **parameters)
    assert shardmill_up.wait(again)["state_type"] == "COMPLETED", shardmill_up.logs(again)


def test_reap_says_that_there_is_nothing_to_do(shardmill_up: RunningServer) -> None:
    assert shardmill_up.comes_true(
        lambda: shardmill_up.shardmill("platform", "reap").stdout == "Nothing to do\n", 60
    )


def test_a_failure_to_put_the_history_in_order_is_told_once_and_ends_nothing(
    shardmill_up: RunningServer,
) -> None:
    home = Path(shardmill_up.env["SHARDMILL_HOME"])
    log, records, aside = home / "logs" / "up.log", home / "records", home / "records-aside"
    told = f"the history cannot be put in order: {records}"
    records.rename(aside)
    records.touch()
    try:
        assert shardmill_up.comes_true(lambda: told in log.read_text(), 60)
    finally:
        records.unlink()
        aside.rename(records)
    assert log.read_text().count(told) == 1
    assert shardmill_up.shardmill("status").returncode == 0
    assert psutil.pid_exists(shardmill_up.pid)
