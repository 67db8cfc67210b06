"""The first page: a training that a flow run started is shown once, inboxes and remedies are shown."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from flows.page.pages.overview import Training, with_trainings
from flows.page.platform import Platform
from flows.page.reading.prefect import Activity, FlowRun
from flows.page.reading.runs import TRAINING, RunRow
from flows.scheduling.inboxes import Inbox


def flow_run(flow: str, dataset: str) -> FlowRun:
    return FlowRun(flow, flow, flow, "Running", "RUNNING", "", 0.0, {"dataset": dataset})


def training(dataset: str) -> Training:
    return RunRow(dataset, TRAINING, 0.0, dataset), "curve"


def test_each_training_stands_under_the_run_that_trains_on_its_dataset() -> None:
    photos, shapes, other = training("photos@3?label=a"), training("shapes@1"), training("other@1")
    runs = [flow_run("prepare", "shapes"), flow_run("train", "photos@3"), flow_run("pipeline", "shapes")]
    work, alone = with_trainings(runs, [photos, shapes, other])
    assert [(run.flow, own) for run, own in work] == [
        ("prepare", []),
        ("train", [photos]),
        ("pipeline", [shapes]),
    ]
    assert alone == [other], "a command without a server"


def test_without_prefect_all_trainings_stand_alone() -> None:
    assert with_trainings([], [training("photos@1")]) == ([], [training("photos@1")])


def test_inboxes_and_what_to_do_about_a_failed_run_are_shown(
    app: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = FlowRun("1", "prepare-a", "prepare", "Failed", "FAILED", "no file\nWhat to do: add one", 0.0, {})
    inbox = Inbox("prepare", "photos", {"source": "/data/incoming"})

    async def activity(platform: Platform) -> Activity:
        return Activity(ended=[failed], inboxes=[inbox])

    monkeypatch.setattr(Platform, "activity", activity)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        shown = client.get("/").text
    assert "no file<br>What to do: add one" in shown
    assert "<code>/data/incoming</code>" in shown
    assert "Nothing is scheduled" not in shown
