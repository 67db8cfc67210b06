"""Which scheduled runs need not wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

from flows.backlog import superfluous

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PHOTOS, OTHER = {"source": "/photos"}, {"source": "/other"}


def run(number: int, parameters: dict[str, Any], *, due: int, scheduled: bool = True, of: int = 1) -> FlowRun:
    return FlowRun(
        id=UUID(int=number),
        flow_id=UUID(int=0),
        deployment_id=UUID(int=of),
        parameters=parameters,
        auto_scheduled=scheduled,
        expected_start_time=NOW + timedelta(seconds=due),
    )


def test_the_first_of_each_kind_waits_and_the_others_do_not() -> None:
    waiting = [
        run(1, PHOTOS, due=-40),
        run(2, PHOTOS, due=-30),
        run(3, OTHER, due=-30),
        run(4, PHOTOS, due=-20, of=2),
        run(5, PHOTOS, due=-10),
    ]
    assert [found.id.int for found in superfluous(waiting, NOW)] == [2, 5]


def test_what_a_person_started_and_what_is_not_due_is_left_alone() -> None:
    waiting = [
        run(1, PHOTOS, due=-40),
        run(2, PHOTOS, due=-30, scheduled=False),
        run(3, PHOTOS, due=10),
    ]
    assert superfluous(waiting, NOW) == []
