"""Runs that start by themselves, on a real server with a real worker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.readable import counted
from tests.prefect_server.server import RunningServer, run_command
from tests.samples.preparing.command import prepare_command
from tests.samples.sources.image_folders import write_image_folder

NUM_AT_ONCE = 3


def runs_of(server: RunningServer, dataset: str, flow: str = "prepare") -> list[dict[str, Any]]:
    """The runs that were due, oldest first."""
    found = server.post(
        "/flow_runs/filter",
        flow_runs={"name": {"any_": [f"{flow}-{dataset}"]}},
        sort="START_TIME_ASC",
        limit=200,
    )
    return [run for run in found if run["state_type"] != "SCHEDULED"]


def ended(server: RunningServer, dataset: str) -> list[tuple[str, str]]:
    """Name and message of the state of each run that has ended, oldest first."""
    return [
        (run["state"]["name"], run["state"]["message"] or "")
        for run in runs_of(server, dataset)
        if run["state_type"] in ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
    ]


@contextmanager
def scheduled(server: RunningServer, source: Path, dataset: str, *options: str) -> Iterator[None]:
    command = ["schedule", "add", str(source), "--dataset", dataset, *options]
    done = server.shardmill(*command)
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        assert server.shardmill("schedule", "remove", "--dataset", dataset).returncode == 0


def test_of_many_automatic_runs_one_does_the_work(shardmill_up: RunningServer, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=6)
    deployment = shardmill_up.get("/deployments/name/prepare/prepare")["id"]
    parameters = [
        {"source": str(source), "dataset": "outage"},
        {"source": str(source), "dataset": "outage", "config": {}, "root": str(shardmill_up.root)},
    ]
    runs = [
        shardmill_up.post(
            f"/deployments/{deployment}/create_flow_run",
            parameters=parameters[number % 2],
            tags=["automatic"],
            state={"type": "SCHEDULED"},
        )["id"]
        for number in range(NUM_AT_ONCE)
    ]
    states = [shardmill_up.wait(run)["state"] for run in runs]
    assert [state["type"] for state in states] == ["COMPLETED"] * NUM_AT_ONCE
    # One may wait for the run that works; it then finds nothing to do.
    assert sorted(state["name"] for state in states)[2:] == ["Skipped"] * (NUM_AT_ONCE - 2)
    skipped = {state["message"] for state in states if state["name"] == "Skipped"}
    # The platform writes the second message when it finds runs that still wait.
    assert skipped <= {"Run prepare-outage does the same", "Another run does the same"}
    assert sum(state["message"] == "Published outage@1" for state in states) == 1
    assert Catalog(shardmill_up.root).versions("outage") == [1]


@pytest.mark.slow
def test_a_failing_source_is_told_once_and_recovers_and_then_nothing_changes(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    good = write_image_folder(tmp_path / "good", per_class=6)
    source = tmp_path / "photos"
    source.mkdir()
    unchanged = ("Unchanged", "Nothing changed: failing@1 is up to date")
    with scheduled(shardmill_up, source, "failing", "--every", "10s"):
        assert shardmill_up.comes_true(lambda: "Postponed" in dict(ended(shardmill_up, "failing")), 400)
        names, messages = zip(*ended(shardmill_up, "failing"), strict=True)
        number = names.index("Postponed")
        # On a busy machine, a minute may pass before the next run begins: then it is tried again.
        assert names[:number] == ("Failed", *["StillFailing"] * (number - 1))
        assert f"failed {counted(number, 'time')} with the same error, next try at" in messages[number]
        good.replace(source)  # all at once: no run sees a part
        assert shardmill_up.comes_true(lambda: unchanged in ended(shardmill_up, "failing"), 600)
    assert [name for name, _ in ended(shardmill_up, "failing")].count("Failed") == 1
    assert Catalog(shardmill_up.root).versions("failing") == [1]
    runs = {run["state"]["message"]: run for run in reversed(runs_of(shardmill_up, "failing"))}
    assert runs[unchanged[1]]["auto_scheduled"]
    seconds = {message: run["total_run_time"] for message, run in runs.items()}
    assert seconds[unchanged[1]] < seconds["Published failing@1"], "not a whole preparation"

    def told() -> list[str]:
        answer = shardmill_up.post("/events/filter", filter={"event": {"prefix": ["shardmill.source."]}})
        return sorted(event["event"] for event in answer["events"])

    assert shardmill_up.comes_true(lambda: len(told()) >= 2, 60)
    assert told() == ["shardmill.source.failing", "shardmill.source.recovered"]


@pytest.mark.slow
def test_a_cron_fires_at_the_next_minute(shardmill_up: RunningServer, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=6)
    with scheduled(shardmill_up, source, "each-minute", "--cron", "* * * * *"):
        assert shardmill_up.comes_true(lambda: ended(shardmill_up, "each-minute") != [], 600)
    first = runs_of(shardmill_up, "each-minute")[0]
    assert first["auto_scheduled"]
    assert first["expected_start_time"][17:19] == "00"
    assert ended(shardmill_up, "each-minute")[0] == ("Completed", "Published each-minute@1")


def published(server: RunningServer, dataset: str) -> int:
    """Number of records of the newest version; 0 without a version."""
    catalog = Catalog(server.root)
    versions = catalog.versions(dataset)
    return catalog.open(dataset).manifest.accounting.num_records if versions else 0


@pytest.mark.slow
def test_an_inbox_takes_up_files_that_arrive(shardmill_up: RunningServer, tmp_path: Path) -> None:
    photos = write_image_folder(tmp_path / "photos", per_class=6)
    inbox = tmp_path / "inbox"
    for folder in sorted(path for path in photos.iterdir() if path.is_dir()):
        (inbox / folder.name).mkdir(parents=True)
        for number, file in enumerate(sorted(folder.iterdir())):
            if number < 4:
                shutil.copy(file, inbox / folder.name)
    quick = ("--inbox", "--settle", "2s", "--within", "4s", "--set", "failure_budget=0.5")
    with scheduled(shardmill_up, inbox, "arriving", *quick):
        listed = json.loads(shardmill_up.shardmill("schedule", "list", "--json").stdout.splitlines()[-1])
        (entry,) = [entry for entry in listed["schedules"] if entry["dataset"] == "arriving"]
        assert (entry["flow"], entry["when"], entry["active"]) == ("prepare", "inbox: 100 files or 4 s", True)
        assert shardmill_up.comes_true(lambda: published(shardmill_up, "arriving") > 0, 180)
        first = published(shardmill_up, "arriving")
        shutil.copytree(photos, inbox, dirs_exist_ok=True)
        assert shardmill_up.comes_true(lambda: published(shardmill_up, "arriving") > first, 120)
    assert {name for name, _ in ended(shardmill_up, "arriving")} <= {"Completed", "Unchanged", "Skipped"}


@pytest.mark.slow
def test_a_dataset_has_several_schedules_which_pause(shardmill_up: RunningServer, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=6)

    def schedule(*arguments: str) -> str:
        done = shardmill_up.shardmill("schedule", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def entries() -> dict[str, dict[str, Any]]:
        said: list[dict[str, Any]] = []

        def answers() -> bool:
            said.append(json.loads(shardmill_up.shardmill("status", "--json").stdout.splitlines()[-1]))
            return said[-1].get("problems") == []

        # A busy server may not answer within the time of one `status`.
        assert shardmill_up.comes_true(answers), said
        status = said[-1]
        assert status["page_url"] == shardmill_up.page_url
        assert [worker["alive"] for worker in status["workers"]].count(True) == 1
        return {entry["name"]: entry for entry in status["schedules"] if entry["dataset"] == "several"}

    of_it = ("--dataset", "several")
    schedule("add", str(source), *of_it, "--every", "7d")
    schedule("add", str(source), *of_it, "--cron", "0 3 * * *", "--name", "nightly", "--train")
    schedule("add", "--maintain", *of_it, "--every", "30d", "--name", "tidy", "--set", "keep_last=3")
    try:
        assert shardmill_up.comes_true(lambda: all(entry["next"] for entry in entries().values()))
        found = entries()
        assert {name: entry["flow"] for name, entry in found.items()} == {
            "": "prepare",
            "nightly": "pipeline",
            "tidy": "maintain",
        }
        assert found["tidy"]["config"] == {"keep_last": 3}
        assert "Paused 1 schedule of several" in schedule("pause", *of_it, "--name", "nightly")
        found = entries()
        assert {name: entry["active"] for name, entry in found.items()} == {
            "": True,
            "nightly": False,
            "tidy": True,
        }
        assert found["nightly"]["next"] is None, "what was planned is gone"
        schedule("resume", *of_it, "--name", "nightly")
        resumed = entries()["nightly"]
        assert resumed["active"]
        assert resumed["source"] == str(source), "pausing keeps the parameters"
        schedule("remove", *of_it, "--name", "nightly")
        assert set(entries()) == {"", "tidy"}
        wrong = shardmill_up.shardmill("schedule", "pause", *of_it, "--name", "gone")
        assert wrong.returncode == 2
        assert "several has no schedule named gone" in wrong.stderr
    finally:
        assert "Removed 2 schedules" in schedule("remove", *of_it)


@pytest.mark.slow
def test_a_maintenance_shows_what_it_removed(shardmill_up: RunningServer, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=6)
    for container in ("none", "gzip"):
        done = run_command(
            prepare_command(
                source, shardmill_up.root, "--set", f"shards.container={container}", dataset="kept"
            ),
            shardmill_up.env,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    run = shardmill_up.deployment_run("maintain/maintain", dataset="kept", config={"keep_last": 1})
    state = shardmill_up.wait(run)["state"]
    assert state["name"] == "Completed", shardmill_up.logs(run)
    assert state["message"].startswith("Dropped 1 version, removed ")
    shown = {artifact["key"]: artifact for artifact in shardmill_up.artifacts(run)}
    rows = json.loads(shown["kept-maintenance"]["data"])
    assert {"what": "version dropped", "name": "kept@1", "size": ""} in rows
    assert Catalog(shardmill_up.root).versions("kept") == [2]
