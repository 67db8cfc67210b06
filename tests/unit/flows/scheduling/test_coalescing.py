"""Superfluous runs, and runs that do the same work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.schemas.filters import DeploymentFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.flows.prepare import prepare
from shardmill.flows.scheduling.coalescing import (
    SKIPPED,
    Waiting,
    is_automatic,
    kind_of,
    skip_repeated,
    superfluous,
)

BEGAN = datetime(2026, 5, 1, tzinfo=UTC)


def waiting(number: int, due_seconds: float, kind: str = "photos", *, automatic: bool = True) -> Waiting:
    return Waiting(UUID(int=number), kind, automatic, BEGAN + timedelta(seconds=due_seconds))


@pytest.mark.parametrize(
    ("runs", "skipped"),
    [
        pytest.param([], [], id="nothing waits"),
        pytest.param([waiting(1, -5)], [1], id="the run that works began after it was due"),
        pytest.param([waiting(1, 5)], [], id="one waits while the run works"),
        pytest.param([waiting(n, -n) for n in range(1, 300)], [*range(299, 0, -1)], id="after an outage"),
        pytest.param([waiting(3, 30), waiting(1, 10), waiting(2, 20)], [2, 3], id="the first one waits"),
        pytest.param(
            [waiting(1, 10), waiting(2, 20, automatic=False)], [1], id="what a person started does the same"
        ),
        pytest.param(
            [waiting(1, -9, automatic=False), waiting(2, 9, automatic=False)], [], id="persons get their runs"
        ),
        pytest.param(
            [waiting(1, -9, automatic=False), waiting(2, -5), waiting(3, 5)],
            [2, 3],
            id="persons and schedules",
        ),
        pytest.param(
            [waiting(1, -9, "other"), waiting(2, -5, "other"), waiting(3, -2)],
            [2, 3],
            id="of another kind one waits, also since before",
        ),
    ],
)
def test_one_run_works_and_at_most_one_waits(runs: list[Waiting], skipped: list[int]) -> None:
    assert [run.id.int for run in superfluous(runs, "photos", BEGAN)] == skipped


OTHERS = UUID(int=3)  # a deployment of another team on the same server
DELETED = UUID(int=7)  # by somebody who removes the schedule meanwhile


class Api:
    """A Prefect API with runs that wait, in the place of its client."""

    def __init__(self, runs: list[FlowRun]) -> None:
        self.runs = runs
        self.skipped: list[UUID] = []

    def read_flow_runs(self, offset: int, limit: int, **_: object) -> list[FlowRun]:
        return self.runs[offset : offset + limit]

    def read_deployments(self, deployment_filter: DeploymentFilter, **_: object) -> list[DeploymentResponse]:
        assert deployment_filter.id is not None
        return [
            DeploymentResponse(
                id=number,
                name="one",
                flow_id=UUID(int=0),
                labels={},
                entrypoint="reports.hourly" if number == OTHERS else "shardmill.flows.prepare.prepare",
            )
            for number in deployment_filter.id.any_ or []
        ]

    def set_flow_run_state(self, run: UUID, state: State[None]) -> None:
        assert state.name == SKIPPED
        if run == DELETED:
            raise ObjectNotFound(Exception("no such run"))
        self.skipped.append(run)


def late(number: int, dataset: str, **more: Any) -> FlowRun:
    """A scheduled run that is due since ``number`` seconds."""
    due: Any = BEGAN - timedelta(seconds=number)
    given = {"deployment_id": UUID(int=1), "auto_scheduled": True, **more}
    parameters = {"dataset": dataset}
    return FlowRun(
        id=UUID(int=number), flow_id=UUID(int=0), expected_start_time=due, parameters=parameters, **given
    )


def test_of_runs_that_piled_up_during_an_outage_one_is_left() -> None:
    piled = [late(number, "photos") for number in range(1, 300)]
    others = [
        late(400, "shapes"),
        late(401, "photos", deployment_id=UUID(int=2)),
        late(402, "photos", deployment_id=None),
        late(403, "shapes", auto_scheduled=False),
    ]
    api = Api([*piled, *others])
    assert skip_repeated(api) == 299  # type: ignore[arg-type]
    left = {run.id.int for run in api.runs} - {run.int for run in [*api.skipped, DELETED]}
    assert left == {299, 401, 402, 403}, "a person's run does what the scheduled one of its kind would do"


def test_runs_of_other_deployments_on_the_server_stay() -> None:
    api = Api([late(number, "hours", deployment_id=OTHERS) for number in range(1, 4)])
    assert skip_repeated(api) == 0  # type: ignore[arg-type]
    assert api.skipped == []


def test_runs_do_the_same_whoever_fills_in_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_ROOT", str(tmp_path))
    short = kind_of(prepare, {"source": "/photos", "dataset": "photos"})
    form = {"source": "/photos", "dataset": "photos", "root": None, "config": {"failure_budget": 0.01}}
    command = {**form, "root": str(tmp_path), "config": PrepareConfig()}
    assert short == kind_of(prepare, form) == kind_of(prepare, command)
    assert short != kind_of(prepare, {**form, "root": "/elsewhere"})
    assert short != kind_of(prepare, {**form, "config": {"seed": 1}})
    assert short != kind_of(prepare, {**form, "dataset": "other"})


def test_runs_with_parameters_of_another_release_are_of_a_kind_of_their_own() -> None:
    odd = {"source": "/photos", "dataset": "photos", "config": {"gone": 1}}
    assert kind_of(prepare, odd) == kind_of(prepare, dict(odd))
    assert kind_of(prepare, odd) != kind_of(prepare, {"source": "/photos", "dataset": "photos"})


@pytest.mark.parametrize(
    ("scheduled", "tags", "automatic"),
    [(True, [], True), (False, ["automatic"], True), (False, ["x"], False)],
)
def test_schedules_and_inboxes_start_runs_by_themselves(
    scheduled: bool, tags: list[str], automatic: bool
) -> None:
    assert is_automatic(FlowRun(flow_id=UUID(int=0), auto_scheduled=scheduled, tags=tags)) is automatic
