"""The commands as flow runs without a server: on a brief API of their own, whose history stays."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infra.catalog import Catalog
from infra.verify import verify
from tests.prefect_server.server import run_command, user_environment
from tests.prefect_server.test_deployments import job_processes, wait_for_block
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
    said = [process.communicate(timeout=120)[1] for process in started]
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


def test_too_many_broken_images_are_status_3_and_publish_nothing(home: Path, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=5)
    (source / "circle" / "000.jpg").write_bytes(b"\xff\xd8\xff but no image")
    command = [*SHARDMILL, "prepare", str(source), "--dataset", "bad", "--root", str(tmp_path / "datasets")]
    done = run_command(command, user_environment(home), timeout=180)

    assert done.returncode == 3
    assert done.stderr.splitlines()[-2].startswith("error: ")
    assert done.stderr.splitlines()[-1].startswith("remedy: ")
    assert "Traceback" not in done.stderr
    assert Catalog(tmp_path / "datasets").datasets() == []
    assert flow_runs(home)[-1] == ("prepare-bad", "FAILED")


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
        tree = job_processes(source)
        wait_for_block(root / "large")
        os.killpg(process.pid, how)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "remedy: run the same command again" in said
    _, alive = psutil.wait_procs(tree, timeout=15)
    assert not alive
    assert flow_runs(home)[-1] == ("prepare-large", "CANCELLED")

    again = run_command(command, environment, timeout=240)
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout.splitlines()[-1])
    assert result["num_records"] == 60
    assert result["reused"]["blocks"] > 0, "it went on from the finished blocks"


def fake_prepare(behaviour: str, source: Path, dataset: str) -> list[str]:
    """`shardmill prepare`, with tests/unit/flows/fake_job.py in the place of the real job."""
    fake = Path(__file__).parents[1] / "unit" / "flows" / "fake_job.py"
    program = (
        "import sys; from flows import children, cli\n"
        f"children.PREPARE = (sys.executable, {str(fake)!r}, {behaviour!r})\n"
        "cli.main(sys.argv[1:])"
    )
    return [sys.executable, "-c", program, "prepare", str(source), "--dataset", dataset, "--json"]


def wait_for_text(path: Path) -> str:
    """What ``path`` says, once it says something."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_text()


def test_a_killed_command_leaves_nothing_behind_and_the_next_marks_its_run(
    home: Path, tmp_path: Path
) -> None:
    environment = user_environment(home) | {"FAKE_JOB_MARKER": str(tmp_path / "pids")}
    with subprocess.Popen(fake_prepare("waits", tmp_path, "lost"), env=environment) as process:
        wait_for_text(tmp_path / "pids")
        tree = psutil.Process(process.pid).children(recursive=True)
        assert len(tree) >= 3, "the server, the job and its child"
        process.kill()
    _, alive = psutil.wait_procs(tree, timeout=15)
    assert not alive
    assert ("prepare-lost", "RUNNING") in flow_runs(home), "nobody was there to say how it ended"

    done = run_command(fake_prepare("works", tmp_path, "next"), environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("prepare-lost", "CRASHED") in flow_runs(home)
    assert flow_runs(home)[-1] == ("prepare-next", "COMPLETED")
    assert not list((home / "running").iterdir())


def test_a_server_that_dies_in_the_middle_is_one_error(home: Path, tmp_path: Path) -> None:
    # Prefect's client tries again for minutes, which is right: a server may be starting again.
    environment = user_environment(home) | {"PREFECT_CLIENT_MAX_RETRIES": "0"}
    done = run_command(fake_prepare("kills-the-server", tmp_path, "alone"), environment, timeout=120)
    assert done.returncode == 4
    error, remedy = done.stderr.splitlines()[-2:]
    assert error.startswith("error: Prefect's API at http://127.0.0.1:")
    assert remedy.endswith("Run the same command again: it goes on where it was")
    assert "Traceback" not in done.stderr
    assert "prefect." not in done.stderr
    assert flow_runs(home)[-1] == ("prepare-alone", "RUNNING")
    assert len(list((home / "running").iterdir())) == 1, "the next command marks it"


def test_a_job_that_is_killed_is_tried_again(home: Path, tmp_path: Path) -> None:
    command = fake_prepare("dies-once", tmp_path, "fake")
    environment = user_environment(home) | {"FAKE_JOB_MARKER": str(tmp_path / "died")}
    done = run_command(command, environment, timeout=120)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    assert json.loads(done.stdout.splitlines()[-1])["dataset"] == "fake"
    assert flow_runs(home)[-1] == ("prepare-fake", "COMPLETED")
