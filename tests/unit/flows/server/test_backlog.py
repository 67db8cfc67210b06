"""Scheduled runs that need not wait."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

from flows.server.backlog import superfluous

PHOTOS, OTHER = {"source": "/photos"}, {"source": "/other"}


def run(number: int, parameters: dict[str, Any], *, scheduled: bool = True, of: int = 1) -> FlowRun:
    return FlowRun(
        id=UUID(int=number),
        flow_id=UUID(int=0),
        deployment_id=UUID(int=of),
        parameters=parameters,
        auto_scheduled=scheduled,
    )


def test_the_first_of_each_kind_waits_and_the_others_do_not() -> None:
    waiting = [
        run(1, PHOTOS),
        run(2, PHOTOS),
        run(3, OTHER),
        run(4, PHOTOS, of=2),
        run(5, PHOTOS),
    ]
    assert [found.id.int for found in superfluous(waiting)] == [2, 5]


def test_what_a_person_started_is_left_alone() -> None:
    waiting = [run(1, PHOTOS), run(2, PHOTOS, scheduled=False), run(3, OTHER)]
    assert superfluous(waiting) == []
