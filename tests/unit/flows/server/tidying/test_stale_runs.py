"""`shardmill up` marks runs as crashed that were killed before they took their lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, Worker, WorkerStatus
from prefect.states import Pending, Running

from shardmill.flows.flow_runs.lost_runs import known_run
from shardmill.flows.server.tidying.stale_runs import end_stale_runs, end_vanished_runs, worker_name

ID = UUID(int=1)


class Api:
    """A Prefect API with workers and one unfinished run, in the place of its client."""

    def __init__(self, workers: list[Worker], run: FlowRun | None = None) -> None:
        self.workers = workers
        self.run = run or FlowRun(flow_id=ID)
        self.marked: list[UUID] = []

    def read_workers_for_work_pool(self, _: str) -> list[Worker]:
        return self.workers

    def read_flow_runs(self, **_: object) -> list[FlowRun]:
        return [self.run]

    def read_flow_run(self, _: UUID) -> FlowRun:
        return self.run

    def set_flow_run_state(self, run: UUID, _: Any, *, force: bool) -> None:
        assert force
        self.marked.append(run)


def use(api: Api, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    @contextmanager
    def client(**_: object) -> Iterator[Api]:
        yield api

    monkeypatch.setenv("SHARDMILL_HOME", str(place))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr("prefect.client.orchestration.get_client", client)


def worker(name: str, status: WorkerStatus) -> Worker:
    return Worker(id=uuid4(), name=name, work_pool_id=ID, status=status)


@pytest.mark.parametrize(
    ("other", "status", "marked"),
    [
        ("its own, killed a moment ago", WorkerStatus.ONLINE, 1),
        ("another machine", WorkerStatus.ONLINE, 0),  # the run may be its own
        ("another machine", WorkerStatus.OFFLINE, 1),
    ],
)
def test_runs_that_may_be_of_another_machine_stay(
    other: str, status: WorkerStatus, marked: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    api = Api([worker(worker_name() if other.startswith("its own") else other, status)])
    use(api, monkeypatch, tmp_path)
    assert end_stale_runs() == len(api.marked) == marked


@pytest.mark.parametrize(
    ("minutes", "process_id", "is_marked"),
    [
        (5, None, True),  # its worker was killed, or the server away, before its process began
        (5, str(2**22 + 1), True),  # no such process
        (5, str(os.getpid()), False),
        (1, None, False),  # it is being started
    ],
    ids=["none", "ended", "running", "starting"],
)
def test_a_run_without_a_process_is_marked_after_two_minutes(
    minutes: int, process_id: str | None, is_marked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state: Any = Pending()
    state.timestamp = datetime.now(UTC) - timedelta(minutes=minutes)
    api = Api([], FlowRun(flow_id=ID, state=state, infrastructure_pid=process_id))
    use(api, monkeypatch, tmp_path)
    assert end_vanished_runs() == len(api.marked) == is_marked


def test_a_run_that_holds_its_lock_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    state: Any = Running()
    state.timestamp = datetime.now(UTC) - timedelta(hours=1)
    api = Api([], FlowRun(flow_id=ID, state=state))
    use(api, monkeypatch, tmp_path)
    with known_run(api.run.id):
        assert end_vanished_runs() == 0
    assert end_vanished_runs() == 1


def test_a_run_that_another_worker_took_stays_when_all_workers_are_offline_after_an_outage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state: Any = Running()
    state.timestamp = datetime.now(UTC) - timedelta(hours=1)
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    for taken_by, marked in (("another machine", 0), (worker_name(), 1)):
        run = FlowRun(flow_id=ID, state=state, labels={"prefect.worker.name": taken_by})
        api = Api([worker("another machine", WorkerStatus.OFFLINE)], run)
        use(api, monkeypatch, tmp_path)
        assert end_vanished_runs() == len(api.marked) == marked
