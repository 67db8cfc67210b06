"""The first page: a training that a flow run started is shown once, inboxes and remedies are shown."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from shardmill.flows.page.pages.overview import SEEN_COOKIE, Training, failures, with_trainings
from shardmill.flows.page.platform import Platform
from shardmill.flows.page.reading.prefect import Activity, FlowRun
from shardmill.flows.page.reading.remembered import LastKnown
from shardmill.flows.page.reading.runs import TRAINING, RunRow
from shardmill.flows.problems import Problem, open_problem
from shardmill.flows.scheduling.inboxes import Inbox
from tests.samples.pages.prefect_answers import answering
from tests.samples.pages.served import get


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
    why = "no file\nWhat to do: add one"
    failed = FlowRun("1", "prepare-a", "prepare", "Failed", "FAILED", why, time.time(), {})
    inbox = Inbox("prepare", "photos", {"source": "/data/incoming"})

    async def activity(platform: Platform) -> Activity:
        return Activity(failed=[failed], inboxes=[inbox])

    monkeypatch.setattr(Platform, "activity", activity)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        shown = client.get("/").text
    assert "no file<br>What to do: add one" in shown
    assert "<code>/data/incoming</code>" in shown
    assert "Nothing is scheduled" not in shown


def ended(kind: str, state: str, minutes_ago: float, message: str = "", dataset: str = "photos") -> FlowRun:
    moment = time.time() - 60 * minutes_ago
    return FlowRun(
        "1", "tactful-nautilus", "prepare", state, kind, message, 0.0, {"dataset": dataset}, ended=moment
    )


def shown(app: Starlette, monkeypatch: pytest.MonkeyPatch, activity: Activity, cookie: str = "") -> str:
    async def known(platform: Platform) -> Activity:
        return activity

    monkeypatch.setattr(Platform, "activity", known)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        return str(client.get("/live", headers={"Cookie": f"{SEEN_COOKIE}={cookie}"}).text)


def test_failures_stand_first_in_red_until_they_are_seen(
    app: Starlette, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    failed = [ended("FAILED", "StillFailing", minutes, "no such folder") for minutes in (3, 8, 13)]
    activity = Activity(
        ended=failed,
        failed=failed,
        idle=[ended("COMPLETED", "Unchanged", 1, "nothing is new", "shapes")],
    )
    text = shown(app, monkeypatch, activity)
    assert text.index("3 runs failed that nobody has seen") < text.index("Running now")
    assert '<span class="chip quarantined">StillFailing</span> <span class="soft">3 times</span>' in text
    assert "prepare photos" in text
    assert "tactful-nautilus" not in text
    folded = text[text.index("<details>") : text.index("</details>")]
    assert "1 run had nothing to do" in folded
    assert "prepare shapes" in folded
    seen = shown(app, monkeypatch, activity, str(time.time() - 60))
    assert "that nobody has seen" not in seen
    assert "Failed since" not in seen
    assert "that nobody has seen" in shown(app, monkeypatch, activity, str(time.time() + 1e6)), "no such time"


def test_only_failures_count_and_only_since_they_were_seen() -> None:
    runs = [
        ended("FAILED", "Failed", 1, "a"),
        ended("CRASHED", "Crashed", 2, "b"),
        ended("FAILED", "Failed", 9, "a"),
        ended("COMPLETED", "Completed", 1),
    ]
    found = failures(runs, time.time() - 300)
    assert [(each.run.message, each.count) for each in found] == [("a", 1), ("b", 1)]
    assert [each.count for each in failures(runs, 0.0)] == [2, 1]


def test_an_empty_platform_names_the_first_steps_and_problems_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    app = create_app(PageOptions(str(tmp_path / "datasets"), str(tmp_path / "runs")))
    text = get(app, "/").text
    assert "First steps" in text
    assert "Nothing is known to be wrong" in text
    open_problem(Problem("source", "/data/x", "/data/x cannot be listed", "mount it", since=time.time()))
    text = get(app, "/").text
    assert "Look here: 1 problem of the platform" in text
    assert text.index("/data/x cannot be listed; mount it") < text.index("Running now")


def test_a_prefect_that_hangs_keeps_nobody_waiting(places: Path) -> None:
    """The page and the metrics answer although the server will never do so."""
    with answering(None) as url:
        app = create_app(PageOptions(str(places / "datasets"), str(places / "runs"), api_url=url))
        metrics, page = get(app, "/metrics").text, get(app, "/").text
    assert "shardmill_prefect_up 0.0" in metrics
    assert 'shardmill_dataset_versions{dataset="photos"} 3.0' in metrics
    assert "has not answered for" in page


def test_the_last_value_is_told_with_its_age_while_the_server_hangs() -> None:
    class Away(Exception):
        pass

    async def story() -> None:
        answers: list[object] = ["first", Away("it is away"), asyncio.Event().wait]

        async def ask() -> str:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if not isinstance(answer, str):
                await answer()  # type: ignore[operator]  # for ever
            return str(answer)

        known = LastKnown("the server", 0.0, ask, Away)
        first = await known.get()
        assert (first.value, first.problem) == ("first", None)
        assert await known.get() == replace(first, problem="it is away")
        hangs = await known.get()
        assert (hangs.value, hangs.read) == ("first", first.read)
        assert "the server has not answered for" in str(hangs.problem)
        known.close()

    asyncio.run(story())
