"""Runs that nothing takes up are a problem, unless another run of their deployment works."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun

from shardmill.flows.server.alarm.problems import late_runs

NOW = datetime(2026, 11, 26, 3, 10, tzinfo=UTC)
DEPLOYMENT = uuid4()


def run(deployment: UUID, minute: int) -> FlowRun:
    due = datetime(2026, 11, 26, 3, minute, tzinfo=UTC)
    return FlowRun(
        flow_id=uuid4(), deployment_id=deployment, expected_start_time=due, parameters={"dataset": "photos"}
    )


class Api:
    """A Prefect API with late runs and runs that work, in the place of its client."""

    def __init__(self, late: list[FlowRun], works: list[FlowRun]) -> None:
        self.late, self.works = late, works

    def read_flow_runs(self, *, flow_run_filter: FlowRunFilter, offset: int = 0, **_: Any) -> list[FlowRun]:
        if offset:
            return []
        return self.late if flow_run_filter.expected_start_time is not None else self.works


@pytest.mark.parametrize(("works", "number"), [([], 1), ([run(uuid4(), 0)], 1), ([run(DEPLOYMENT, 0)], 0)])
def test_a_deployment_whose_runs_wait_is_told_once(works: list[FlowRun], number: int) -> None:
    api: Any = Api([run(DEPLOYMENT, 2), run(DEPLOYMENT, 1)], works)
    problems = late_runs(api, NOW)
    assert len(problems) == number
    for problem in problems:
        assert problem.kind == "schedule"
        assert problem.text == "2 runs of photos did not begin; the first was due at 2026-11-26 03:01 UTC"


def test_no_late_run_is_no_problem() -> None:
    api: Any = Api([], [])
    assert late_runs(api, NOW) == []
