"""A run that is cancelled in Prefect stops, also if its worker does nothing about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect.states import Cancelling, Running, Suspended

from shardmill.flows.flow_runs.children import watched_runs

ID = UUID(int=1)


def use(states: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer with these states in turn, the last one for ever; an exception is raised."""

    class Api:
        def read_flow_run(self, _: UUID) -> SimpleNamespace:
            state = states.pop(0) if len(states) > 1 else states[0]
            if isinstance(state, Exception):
                raise state
            return SimpleNamespace(state=state)

    @contextmanager
    def client(**_: object) -> Iterator[Api]:
        yield Api()

    monkeypatch.setattr("prefect.client.orchestration.get_client", client)


@pytest.mark.parametrize("worker_seconds", [0.0, 0.5])
def test_a_cancelled_run_stops_after_its_worker_had_time_to_end_it(
    worker_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    use([Running(), httpx.ConnectError("away"), Cancelling()], monkeypatch)
    began = time.monotonic()
    with watched_runs([ID], worker_seconds=worker_seconds, poll_seconds=0.01) as request:
        assert request.event.wait(60)
    assert time.monotonic() - began >= worker_seconds
    assert request.reason == "the run was cancelled in Prefect"


def test_a_suspended_run_stops_at_once_also_under_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    use([Suspended()], monkeypatch)
    with watched_runs([ID], worker_seconds=600, poll_seconds=0.01) as request:
        assert request.event.wait(60)
    assert request.reason == "the run was suspended in Prefect"
