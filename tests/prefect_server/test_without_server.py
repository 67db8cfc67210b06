"""The commands where no Prefect server runs: they start none, and keep a record of the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.prefect_server.jobs import fake_prepare, held_after_a_block, wait_for_text
from tests.prefect_server.server import run_command, user_environment
from tests.samples.sources.image_folders import write_image_folder, write_many_large_images

SHARDMILL = [sys.executable, "-m", "shardmill.flows.cli"]


def records(home: Path) -> list[dict[str, Any]]:
    """The records of runs, in the order of their names."""
    found = [json.loads(path.read_text()) for path in (home / "records").glob("*.json")]
    return sorted(found, key=lambda record: (record["name"], record["state"], record["message"]))


def states(home: Path) -> list[tuple[str, str]]:
    return [(record["name"], record["state"]) for record in records(home)]


def test_prepare_publishes_and_keeps_a_record(tmp_path: Path) -> None:
    source, home = write_image_folder(tmp_path / "photos"), tmp_path / "home"
    command = [*SHARDMILL, "prepare", str(source), "--dataset", "shapes", "--json"]
    command += ["--root", str(tmp_path / "datasets"), "--set", "image.size=64"]
    # It would fail if it were imported.
    no_prefect = user_environment(home) | {"PREFECT_HOME": "/dev/null/nowhere"}
    done = run_command(command, no_prefect, timeout=300)

    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["dataset"], result["version"], result["num_records"]) == ("shapes", 1, 40)
    assert "encode" in done.stderr

    again = run_command(command, no_prefect, timeout=300)
    assert json.loads(again.stdout.splitlines()[-1])["unchanged"]
    assert verify(Catalog(tmp_path / "datasets").open("shapes")).problems == []
    assert not (home / "prefect").exists()
    published, unchanged = records(home)
    assert (published["state"], published["message"]) == ("Completed", "Published shapes@1")
    assert (unchanged["state"], unchanged["message"]) == (
        "Unchanged",
        "Nothing changed: shapes@1 is up to date",
    )
    assert published["parameters"]["config"] == {"image": {"size": 64}}
    assert "begins: encode" in [line["message"] for line in published["log"]]


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_prepare_is_status_130_and_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    source = write_many_large_images(tmp_path / "large", 60)
    root, home = tmp_path / "datasets", tmp_path / "home"
    command = [*SHARDMILL, "prepare", str(source), "--dataset", "large", "--root", str(root), "--json"]
    command += ["--set", "runner.block_images=16"]
    environment = user_environment(home)
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        tree = held_after_a_block(source, root / "large", lambda: process.poll() is not None)
        os.killpg(process.pid, how)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "remedy: run the same command again" in said
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive
    assert states(home) == [("prepare-large", "Cancelled")]

    again = run_command(command, environment, timeout=240)
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout.splitlines()[-1])
    assert result["num_records"] == 60
    assert result["reused"]["blocks"] > 0, "it went on from the finished blocks"


def test_a_killed_command_leaves_nothing_behind_but_its_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = user_environment(home) | {"FAKE_JOB_MARKER": str(tmp_path / "pids")}
    with subprocess.Popen(fake_prepare("waits", tmp_path, "lost"), env=environment) as process:
        wait_for_text(tmp_path / "pids", process)
        tree = psutil.Process(process.pid).children(recursive=True)
        assert len(tree) == 2, "the job and its child; no server"
        process.kill()
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive
    assert states(home) == [("prepare-lost", "Running")], "shardmill up will call it crashed"


def test_a_failure_is_kept_with_its_reason(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = run_command(fake_prepare("over-budget", tmp_path, "bad"), user_environment(home), 60)
    assert done.returncode == 3
    (record,) = records(home)
    assert (record["state"], record["message"]) == ("Failed", "9 of 10 inputs cannot be decoded")
    assert "raise failure_budget" in record["log"][-2]["message"], "the remedy is in the log"


def test_a_job_that_is_killed_is_tried_again(tmp_path: Path) -> None:
    environment = user_environment(tmp_path / "home") | {"FAKE_JOB_MARKER": str(tmp_path / "died")}
    done = run_command(fake_prepare("dies-once", tmp_path, "again"), environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "warning: a child process was killed by SIGKILL" in done.stderr
    assert "trying again in 5 s" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["dataset"] == "fake"
