"""The reaper starts crashed runs again, and leaves other runs alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed, Crashed, Running

from shardmill.flows import home
from shardmill.flows.server.tidying.reaper import Reaper, may_restart

ID = UUID(int=1)


@pytest.mark.parametrize(
    ("run", "again"),
    [
        (FlowRun(flow_id=ID, deployment_id=ID, auto_scheduled=True), True),
        (FlowRun(flow_id=ID, deployment_id=ID, tags=["automatic"]), True),
        (FlowRun(flow_id=ID, deployment_id=ID), False),  # a person started it, and sees it
        (FlowRun(flow_id=ID, auto_scheduled=True), False),  # inside another run
        (FlowRun(flow_id=ID, deployment_id=ID, tags=["automatic", "restarted"]), False),
    ],
)
def test_an_automatic_run_is_started_again_once(run: FlowRun, again: bool) -> None:
    assert may_restart(run) is again


class Api:
    """A Prefect API with a few runs, in the place of its client."""

    def __init__(self, crashed: list[FlowRun], inside: list[FlowRun], refusal: Exception) -> None:
        self.crashed, self.inside, self.refusal = crashed, inside, refusal
        self.states: dict[UUID, State[Any]] = {}
        self.started: list[UUID] = []
        self.marked: list[UUID] = []

    def read_flow_runs(self, flow_run_filter: Any, **_: object) -> list[FlowRun]:
        if flow_run_filter.parent_task_run_id is not None:
            return self.inside
        return self.crashed if flow_run_filter.end_time is not None else []

    def read_global_concurrency_limits(self, **_: object) -> list[object]:
        return []

    def read_deployments(self, deployment_filter: Any, **_: object) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(
                id=one, entrypoint="reports.hourly" if one == OTHERS else "shardmill.flows.prepare.prepare"
            )
            for one in deployment_filter.id.any_
        ]

    def read_flow_run(self, run: UUID) -> SimpleNamespace:
        return SimpleNamespace(state=self.states[run], parent_task_run_id=ID)

    def read_task_run(self, _: UUID) -> SimpleNamespace:
        return SimpleNamespace(flow_run_id=PARENT)

    def read_task_runs(self, **_: object) -> list[object]:
        return []

    def set_flow_run_state(self, run: UUID, state: State[Any], force: bool) -> None:
        assert force
        self.marked.append(run)

    def create_flow_run_from_deployment(self, deployment: UUID, **_: object) -> None:
        if deployment == GONE:
            raise self.refusal
        self.started.append(deployment)


PARENT, GONE, THERE, OTHERS = (UUID(int=number) for number in range(2, 6))


def crashed_run(deployment: UUID) -> FlowRun:
    return FlowRun(flow_id=ID, deployment_id=deployment, auto_scheduled=True, end_time=datetime.now(UTC))


def reap(api: Api, monkeypatch: pytest.MonkeyPatch, place: Path, *, has_worker: bool = True) -> list[str]:
    @contextmanager
    def client(**_: object) -> Iterator[Api]:
        yield api

    monkeypatch.setenv("SHARDMILL_HOME", str(place))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr("prefect.client.orchestration.get_client", client)
    return Reaper(has_worker=has_worker).reap()


REQUEST = httpx.Request("POST", "http://127.0.0.1:9/api")


@pytest.mark.parametrize(
    "refusal",
    [
        ObjectNotFound(Exception("no such deployment")),
        httpx.HTTPStatusError("wrong parameters", request=REQUEST, response=httpx.Response(409)),
    ],
)
def test_a_run_that_cannot_be_started_again_does_not_stop_the_others(
    refusal: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api = Api([crashed_run(GONE), crashed_run(THERE)], [], refusal)
    assert reap(api, monkeypatch, tmp_path) == ["started 1 crashed scheduled run again"]
    assert api.started == [THERE]


def test_a_crashed_run_of_others_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api = Api([crashed_run(OTHERS), crashed_run(THERE)], [], RuntimeError())
    assert reap(api, monkeypatch, tmp_path) == ["started 1 crashed scheduled run again"]
    assert api.started == [THERE]


@pytest.mark.parametrize(("state", "is_marked"), [(Running(), True), (Completed(), False)])
def test_a_run_that_ended_just_before_its_parent_stays_as_it_is(
    state: State[Any], is_marked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inside = FlowRun(flow_id=ID, parent_task_run_id=ID)
    api = Api([], [inside], RuntimeError())
    api.states = {PARENT: Crashed(), inside.id: state}
    reap(api, monkeypatch, tmp_path)
    assert (inside.id in api.marked) is is_marked


def test_a_foreign_file_among_the_runs_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    foreign = home.running_folder() / ".nfs0001"
    foreign.write_text("http://127.0.0.1:9/api")
    assert reap(Api([], [], RuntimeError()), monkeypatch, tmp_path) == []
    assert foreign.exists()


@pytest.mark.parametrize("has_worker", [True, False])
def test_only_beside_its_worker_a_reaper_marks_runs_that_hold_no_lock(
    has_worker: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shardmill.flows.server.tidying.reaper.end_vanished_runs", lambda: 1)
    said = reap(Api([], [], httpx.ConnectError("unused")), monkeypatch, tmp_path, has_worker=has_worker)
    assert said == (["marked 1 run as crashed whose process was killed"] if has_worker else [])
