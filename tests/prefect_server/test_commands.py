"""The commands under a running `shardmill up`, and under a server that dies."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from shardmill.flows.server import services
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import GO_ON
from shardmill.infra.processes.ports import free_port
from tests.prefect_server.jobs import fake_prepare, wait_for_text
from tests.prefect_server.server import RunningServer, run_command, user_environment
from tests.samples.sources.image_folders import write_image_folder
from tests.samples.waiting import before_its_end


@contextlib.contextmanager
def mortal_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a user of a server that a fake job can kill and that is not restarted."""
    monkeypatch.setenv("PREFECT_HOME", str(home / "prefect"))
    port = free_port()
    server = services.Server("127.0.0.1", port, log_path=home / "server.log", env={})
    with server:
        server.wait_until_healthy()
        yield user_environment(home) | {
            "PREFECT_API_URL": server.api_url,
            "PREFECT_CLIENT_MAX_RETRIES": "1",
            "FAKE_JOB_SERVER": str(server.process.pid),
        }


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
    run = shardmill_up.run_named("prepare-bad")
    assert run["state_name"] == "Failed"
    assert run["state"]["message"].startswith("prepare failed: ")
    assert "\nWhat to do: " in run["state"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["prepare", "run"])
def test_a_server_that_dies_hides_no_result(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mortal_server(tmp_path, monkeypatch) as environment:
        arguments = fake_prepare("kills-the-server", tmp_path, "alone")
        arguments[arguments.index("prepare")] = command
        done = run_command(arguments, environment, 180)
    assert "Traceback" not in done.stderr
    lost = f"Prefect's API at {environment['PREFECT_API_URL']} failed"
    if command == "prepare":
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["version"] == 1
        warning = done.stderr.splitlines()[-1]
        assert warning.startswith(f"warning: {lost}")
        assert warning.endswith("; the run's history in Prefect stays incomplete")
        assert len(list((tmp_path / "running").iterdir())) == 1, "the next command marks it"
    else:
        assert done.returncode == 4
        error, remedy = done.stderr.splitlines()[-2:]
        assert error.startswith(f"error: {lost}")
        assert error.endswith("; before that, fake@1 was published")
        assert remedy.endswith(f", then {GO_ON}")


@pytest.mark.slow
def test_a_server_that_dies_hides_no_error_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mortal_server(tmp_path, monkeypatch) as environment:
        command = fake_prepare("kills-the-server-and-fails", tmp_path, "alone")
        done = run_command(command, environment, 180)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-2:] == [
        "error: 9 of 10 inputs cannot be decoded",
        "remedy: raise failure_budget",
    ]


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
        run = before_its_end(
            lambda: shardmill_up.find_run(f"prepare-{name}", "RUNNING"), lambda: process.poll() is not None
        )
        shardmill_up.post(f"/flow_runs/{run['id']}/set_state", state=state)
        _, stderr = process.communicate(timeout=300)
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
    done = run_command(command, environment, timeout=300)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    assert json.loads(done.stdout.splitlines()[-1])["dataset"] == "fake"
    assert shardmill_up.state_of("prepare-again") == "COMPLETED"


def test_an_unchanged_source_is_answered_before_prefect_is_there(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=5)
    command = ["prepare", str(source), "--dataset", "same", "--root", str(tmp_path / "datasets"), "--json"]
    first = shardmill_up.shardmill(*command)
    assert first.returncode == 0, first.stderr
    assert shardmill_up.ui_url in first.stderr, "the run's page is printed"
    assert shardmill_up.run_named("prepare-same")["state"]["message"] == "Published same@1"

    again = shardmill_up.shardmill(*command)
    assert json.loads(again.stdout.splitlines()[-1])["unchanged"]
    assert "Run page" not in again.stderr, "it did not wait for Prefect"

    def messages() -> list[str]:
        found = shardmill_up.post("/flow_runs/filter", flow_runs={"name": {"any_": ["prepare-same"]}})
        said = [run["state"]["message"] or run["state_type"] for run in found]
        return sorted(message.partition(", ")[0] for message in said)

    told = ["Nothing changed: same@1 is up to date (by a command", "Published same@1"]
    assert shardmill_up.comes_true(lambda: messages() == told), (
        f"shardmill up takes the record over: {messages()}"
    )


def test_a_run_without_a_server_that_was_killed_becomes_a_crashed_run(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    program = (
        "import time; from shardmill.flows.flow_runs.run_records import RunRecord\n"
        "with RunRecord('train', 'train-killed-alone', {'dataset': 'x'}).kept():\n"
        "    print('kept', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=dict(shardmill_up.env), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"kept\n"
        process.kill()

    def found() -> list[dict[str, object]]:
        runs = shardmill_up.post("/flow_runs/filter", flow_runs={"name": {"any_": ["train-killed-alone"]}})
        return [run for run in runs if run["state_type"] == "CRASHED"]

    assert shardmill_up.comes_true(lambda: len(found()) == 1)
    assert found()[0]["parameters"] == {"dataset": "x"}


def test_the_page_of_a_failed_run_says_what_failed_and_what_to_do(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    done = run_command(fake_prepare("over-budget", tmp_path, "overdone"), shardmill_up.env, timeout=300)
    assert done.returncode == 3, done.stderr
    assert "truncated: a/broken.jpg (it ends early)" in done.stderr

    run = shardmill_up.run_named("prepare-overdone")
    assert run["state_type"] == "FAILED"
    said = "prepare failed: 9 of 10 inputs cannot be decoded\nWhat to do: raise failure_budget"
    assert run["state"]["message"] == said
    shown = {artifact["key"]: artifact for artifact in shardmill_up.artifacts(run["id"])}
    assert set(shown) == {"overdone-prepare-progress", "overdone-failure"}
    assert shown["overdone-prepare-progress"]["data"] < 100
    text = shown["overdone-failure"]["data"]
    for words in (
        "9 of 10 inputs",
        "raise failure\\_budget",
        "`a/broken.jpg`",
        "(data:image/png",
        "a line of the",
    ):
        assert words in text
    assert f"`shardmill prepare {tmp_path} --dataset overdone --root" in text
    errors = shardmill_up.post(
        "/logs/filter", logs={"flow_run_id": {"any_": [run["id"]]}, "level": {"ge_": 40}}, limit=50
    )
    assert "9 of 10 inputs cannot be decoded" in [entry["message"] for entry in errors]
