"""What happened on the server is told once, to those who asked for it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Cancelled, Completed, Crashed, Failed

from shardmill.flows.server.alarm import outbox
from shardmill.flows.server.alarm.destinations import OCCASIONS, Destination
from shardmill.flows.server.alarm.history import History

ALL = Destination("http://127.0.0.1/all", frozenset(OCCASIONS))
FAILED = Destination("http://127.0.0.1/failed", frozenset({"failed"}))
NOTHING_DONE = [Completed(name=name, message="why") for name in ("Unchanged", "Skipped", "Postponed")]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT_UI_URL", "http://ui")


class Api:
    """A Prefect API with runs that ended and events, in the place of its client."""

    def __init__(self) -> None:
        self.runs: list[FlowRun] = []
        self.events: list[dict[str, Any]] = []
        self.emitted: list[str] = []
        self.is_away = False

    def ended(
        self, state: State[Any], run_id: UUID | None = None, run_count: int = 1, parent: UUID | None = None
    ) -> FlowRun:
        run = FlowRun(
            parent_task_run_id=parent,
            id=run_id or uuid4(), flow_id=uuid4(), name="prepare-photos", state=state, run_count=run_count,
            end_time=datetime.now(UTC), parameters={"dataset": "photos"},
        )  # fmt: skip
        self.runs.insert(0, run)
        return run

    def event(self, name: str, resource: dict[str, str], **payload: str) -> None:
        resource = {"prefect.resource.id": "id", "prefect.resource.name": "photos@2", **resource}
        at = datetime.now(UTC).isoformat()
        self.events.append(
            {"id": str(uuid4()), "event": name, "resource": resource, "payload": payload, "occurred": at}
        )

    def read_flow_runs(self, *, flow_run_filter: FlowRunFilter, offset: int, **_: object) -> list[FlowRun]:
        if self.is_away:
            raise httpx.ConnectError("away")
        without_parent = flow_run_filter.parent_task_run_id
        is_wanted = without_parent is not None and without_parent.is_null_
        return [] if offset else [run for run in self.runs if (run.parent_task_run_id is None) == is_wanted]

    def request(self, _: str, path: str, json: Any) -> httpx.Response:
        if path == "/events":
            self.emitted += [event["event"] for event in json]
        return httpx.Response(200, json={"events": self.events}, request=httpx.Request("POST", "http://x"))


def look(api: Api, *destinations: Destination, history: History | None = None) -> int:
    return (history or History()).look(api, {one.name: one for one in destinations})  # type: ignore[arg-type]


def texts(to: Destination) -> list[str]:
    return [one.message.text for _, one in outbox.waiting().get(to.name, [])]


@pytest.mark.parametrize("state", [Failed(message="why"), Crashed(message="why"), Cancelled(message="why")])
def test_a_run_that_did_not_complete_is_told_once(state: State[Any]) -> None:
    api = Api()
    run = api.ended(state)
    assert [look(api, FAILED), look(api, FAILED)] == [1, 0], "also by another process"
    assert texts(FAILED) == [f"prepare-photos: {state.name}. why http://ui/runs/flow-run/{run.id}"]
    assert api.emitted == ["shardmill.run.failed"]


@pytest.mark.parametrize(
    "state", [*NOTHING_DONE, Completed(), Failed(name="StillFailing"), Completed(name="Other")]
)
def test_whoever_asked_for_failures_hears_of_nothing_else(state: State[Any]) -> None:
    api = Api()
    api.ended(state)
    look(api, FAILED)
    assert texts(FAILED) == []


@pytest.mark.parametrize("state", NOTHING_DONE)
def test_a_run_that_did_nothing_is_told_only_if_asked_for(state: State[Any]) -> None:
    api = Api()
    api.ended(state)
    usual = Destination("http://127.0.0.1/most", frozenset(OCCASIONS) - {"unchanged"})
    look(api, usual, ALL)
    assert (len(texts(usual)), len(texts(ALL))) == (0, 1)


def test_a_run_that_is_tried_again_is_told_again_and_a_corrected_state_is_not() -> None:
    api, run_id = Api(), uuid4()
    api.ended(Failed(), run_id)
    look(api, FAILED)
    api.runs[0] = api.runs[0].model_copy(update={"state": Crashed()})
    assert look(api, FAILED) == 0
    api.ended(Crashed(), run_id, run_count=2)
    assert look(api, FAILED) == 1


def test_what_ends_while_nobody_looks_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    api, history = Api(), History()
    look(api, FAILED, history=history)
    api.is_away = True
    with pytest.raises(httpx.HTTPError):
        look(api, FAILED, history=history)
    api.is_away = False
    api.ended(Failed())
    later = time.time() + 86400
    monkeypatch.setattr("time.time", lambda: later)
    assert look(api, FAILED) == 1


def test_one_thing_is_told_once_to_whoever_asked_for_all() -> None:
    api = Api()
    api.event("shardmill.dataset.published", {"shardmill.training": "open"})
    api.ended(Completed(message="Published photos@2"))
    look(api, ALL)
    assert len(texts(ALL)) == 1
    api.event("shardmill.source.failing", {}, error="why")
    api.ended(Failed(message="why"))
    look(api, ALL)
    assert len(texts(ALL)) == 2


def test_a_pipeline_is_one_message_and_its_parts_are_none() -> None:
    api = Api()
    for parent in (uuid4(), uuid4(), None):
        api.ended(Completed(message="done"), parent=parent)
    look(api, ALL)
    assert len(texts(ALL)) == 1


def test_a_version_of_a_pipeline_is_told_before_its_training_ends() -> None:
    api = Api()
    api.event("shardmill.dataset.published", {"shardmill.training": "follows"})
    look(api, ALL)
    assert texts(ALL) == ["photos@2 was published"]
