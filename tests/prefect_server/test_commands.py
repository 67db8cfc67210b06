"""The commands as flow runs without a server: on a brief API of their own, whose history stays."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from infra.dataset.catalog import Catalog
from infra.dataset.verify import verify
from infra.errors import GO_ON
from tests.prefect_server.jobs import fake_prepare, held_after_a_block, wait_for_text
from tests.prefect_server.server import RunningServer, run_command, user_environment
from tests.samples.image_folders import write_image_folder, write_many_large_images

SHARDMILL = [sys.executable, "-m", "flows.cli"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def flow_runs(home: Path) -> list[tuple[str, str]]:
    """(name, state) of the runs in the history, oldest first."""
    with sqlite3.connect(f"file:{home}/prefect/prefect.db?mode=ro", uri=True) as database:
        found = database.execute("select name, state_type from flow_run order by created").fetchall()
    database.close()
    return found


def test_two_first_commands_at_once_both_work(home: Path, tmp_path: Path) -> None:
    # The first of this module: neither finds a database.
    assert not (home / "prefect").exists()
    commands = [fake_prepare("works", tmp_path, name) for name in ("first", "second")]
    started = [
        subprocess.Popen(command, env=user_environment(home), stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    said = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert sorted(flow_runs(home)) == [("prepare-first", "COMPLETED"), ("prepare-second", "COMPLETED")]


def test_prepare_publishes_and_leaves_its_history(home: Path, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos")
    command = [
        *SHARDMILL,
        "prepare",
        str(source),
        "--dataset",
        "shapes",
        "--root",
        str(tmp_path / "datasets"),
        "--json",
    ]
    done = run_command(command, user_environment(home), timeout=180)

    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["dataset"], result["version"], result["num_records"]) == ("shapes", 1, 40)
    assert "encode" in done.stderr
    assert "prefect" not in done.stderr.lower().replace("first use of prefect", ""), "its own talk stays away"
    assert flow_runs(home)[-1] == ("prepare-shapes", "COMPLETED")

    again = run_command(command, user_environment(home), timeout=180)
    assert json.loads(again.stdout.splitlines()[-1])["unchanged"]
    assert verify(Catalog(tmp_path / "datasets").open("shapes")).problems == []


def test_too_many_broken_images_are_status_3_and_publish_nothing(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=5)
    (source / "circle" / "000.jpg").write_bytes(b"\xff\xd8\xff but no image")
    done = shardmill_up.shardmill(
        "prepare", str(source), "--dataset", "bad", "--root", str(tmp_path / "datasets")
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-2].startswith("error: ")
    assert done.stderr.splitlines()[-1].startswith("remedy: ")
    assert "Traceback" not in done.stderr
    assert Catalog(tmp_path / "datasets").datasets() == []
    assert shardmill_up.state_of("prepare-bad") == "FAILED"


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_prepare_is_status_130_and_goes_on(
    home: Path, tmp_path: Path, how: signal.Signals
) -> None:
    source = write_many_large_images(tmp_path / "large", 60)
    root = tmp_path / "datasets"
    command = [*SHARDMILL, "prepare", str(source), "--dataset", "large", "--root", str(root), "--json"]
    command += ["--set", "runner.block_images=16"]
    environment = user_environment(home)
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        tree = held_after_a_block(source, root / "large", lambda: process.poll() is not None)
        os.killpg(process.pid, how)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "remedy: run the same command again" in said
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive
    assert flow_runs(home)[-1] == ("prepare-large", "CANCELLED")

    again = run_command(command, environment, timeout=240)
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout.splitlines()[-1])
    assert result["num_records"] == 60
    assert result["reused"]["blocks"] > 0, "it went on from the finished blocks"


def test_a_killed_command_leaves_nothing_behind_and_the_next_marks_its_run(
    home: Path, tmp_path: Path
) -> None:
    environment = user_environment(home) | {"FAKE_JOB_MARKER": str(tmp_path / "pids")}
    with subprocess.Popen(fake_prepare("waits", tmp_path, "lost"), env=environment) as process:
        wait_for_text(tmp_path / "pids", process)
        tree = psutil.Process(process.pid).children(recursive=True)
        assert len(tree) >= 3, "the server, the job and its child"
        process.kill()
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive
    assert ("prepare-lost", "RUNNING") in flow_runs(home), "nobody was there to say how it ended"

    done = run_command(fake_prepare("works", tmp_path, "next"), environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("prepare-lost", "CRASHED") in flow_runs(home)
    assert flow_runs(home)[-1] == ("prepare-next", "COMPLETED")
    assert not list((home / "running").iterdir())


def test_a_server_that_dies_hides_no_result(home: Path, tmp_path: Path) -> None:
    # Nobody restarts the server: its client does not wait for it for minutes.
    done = run_command(fake_prepare("kills-the-server", tmp_path, "alone"), user_environment(home), 120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["version"] == 1
    warning = done.stderr.splitlines()[-1]
    assert warning.startswith("warning: Prefect's API at http://127.0.0.1:")
    assert warning.endswith("; the run's history in Prefect stays incomplete")
    assert "Traceback" not in done.stderr
    assert "prefect." not in done.stderr
    assert flow_runs(home)[-1] == ("prepare-alone", "RUNNING")
    assert len(list((home / "running").iterdir())) == 1, "the next command marks it"


@pytest.mark.slow
def test_a_server_that_dies_hides_no_error_of_the_job(home: Path, tmp_path: Path) -> None:
    command = fake_prepare("kills-the-server-and-fails", tmp_path, "alone")
    done = run_command(command, user_environment(home), 120)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-2:] == [
        "error: 9 of 10 inputs cannot be decoded",
        "remedy: raise failure_budget",
    ]


@pytest.mark.slow
def test_a_server_that_dies_before_the_training_says_what_was_published(home: Path, tmp_path: Path) -> None:
    command = fake_prepare("kills-the-server", tmp_path, "alone")
    command[command.index("prepare")] = "run"
    done = run_command(command, user_environment(home), 120)
    assert done.returncode == 4
    error, remedy = done.stderr.splitlines()[-2:]
    assert error.startswith("error: Prefect's API at http://127.0.0.1:")
    assert error.endswith("; before that, fake@1 was published")
    assert remedy.endswith(f", then {GO_ON}")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"type": "CANCELLING", "name": "Cancelling"}, "the run was cancelled in Prefect"),
        ({"type": "PAUSED", "name": "Suspended"}, "the run was suspended in Prefect"),
    ],
)
def test_a_stop_in_prefect_ends_the_command(
    shardmill_up: RunningServer, tmp_path: Path, state: dict[str, str], said: str
) -> None:
    name = state["name"].lower()
    environment = {**shardmill_up.env, "FAKE_JOB_MARKER": str(tmp_path / "pids")}
    command = fake_prepare("waits", tmp_path, name)
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        wait_for_text(tmp_path / "pids", process)
        job = psutil.Process(process.pid).children(recursive=True)
        run = shardmill_up.run_named(f"prepare-{name}")
        shardmill_up.post(f"/flow_runs/{run['id']}/set_state", state=state)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-2:] == [
        f"error: {said}",
        f"remedy: {GO_ON}",
    ]
    assert "Traceback" not in stderr
    assert not psutil.wait_procs(job, timeout=60)[1]
    assert shardmill_up.wait(run["id"])["state_type"] == "CANCELLED"


def test_a_job_that_is_killed_is_tried_again(shardmill_up: RunningServer, tmp_path: Path) -> None:
    command = fake_prepare("dies-once", tmp_path, "again")
    environment = {**shardmill_up.env, "FAKE_JOB_MARKER": str(tmp_path / "died")}
    done = run_command(command, environment, timeout=120)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    assert json.loads(done.stdout.splitlines()[-1])["dataset"] == "fake"
    assert shardmill_up.state_of("prepare-again") == "COMPLETED"
