"""Runs of a machine that is gone are marked; runs whose worker only fails to reach the server stay."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, Worker, WorkerStatus
from prefect.states import Running

from shardmill.flows.server.tidying.stale_runs import GoneMachines

ID = UUID(int=1)
WORKER = "ProcessWorker-other-machine"
LOOKS_SECONDS = 20.0


class Api:
    """A Prefect API with one worker and one run of it, in the place of its client."""

    def __init__(self, run: FlowRun, status: WorkerStatus) -> None:
        self.run, self.status = run, status
        self.marked: list[UUID] = []

    def read_flow_runs(self, **_: object) -> list[FlowRun]:
        return [self.run]

    def read_flow_run(self, _: UUID) -> FlowRun:
        return self.run

    def read_workers_for_work_pool(self, _: str) -> list[Worker]:
        return [Worker(id=uuid4(), name=WORKER, work_pool_id=ID, status=self.status)]

    def set_flow_run_state(self, run: UUID, _: Any, *, force: bool) -> None:
        assert force
        self.marked.append(run)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def run_of(root: Path, worker_type: str = "process") -> FlowRun:
    """A run that began an hour ago on another machine."""
    labels = {
        "prefect.worker.name": WORKER,
        "prefect.worker.type": worker_type,
        "prefect.work-pool.name": "shardmill",
    }
    began: Any = datetime.now(UTC) - timedelta(hours=1)
    parameters = {"source": "/data/photos", "dataset": "photos", "root": str(root)}
    return FlowRun(flow_id=ID, state=Running(), labels=labels, start_time=began, parameters=parameters)


def write_lease(root: Path, age_seconds: float) -> None:
    """Write the lock of the dataset as a process of another machine leaves it."""
    holder = {
        "id": "a",
        "exclusive": False,
        "host": "other-machine",
        "machine": "its-kernel/1",
        "pid": 7,
        "started": 8,
        "renewals": 9,
        "renewed_at": 0.0,
    }
    path = root / "photos" / "upkeep.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"holders": [holder], "written_by": "a"}))
    renewed = time.time() - age_seconds
    os.utime(path, (renewed, renewed))


def seconds_until_marked(api: Api, *, until: float = 1000.0) -> float | None:
    """Look every 20 s; return when the run was marked, None if it was not."""
    clock = Clock()
    machines = GoneMachines(clock)
    while clock.now < until:
        if machines.end_runs(cast(SyncPrefectClient, api)):
            assert api.marked == [api.run.id]
            return clock.now
        clock.now += LOOKS_SECONDS
    return None


@pytest.mark.parametrize(
    ("lease_age_seconds", "marked_after_seconds"),
    [
        (200.0, 60.0),
        (5.0, None),  # the run works, and only its worker cannot reach the server
        (2 * 3600.0, 600.0),  # of a run before this one
        (None, 600.0),  # on a disk of the other machine
    ],
    ids=["expired", "renewed", "of an earlier run", "none"],
)
def test_a_run_of_an_offline_worker_is_marked_unless_its_lease_is_renewed(
    tmp_path: Path, lease_age_seconds: float | None, marked_after_seconds: float | None
) -> None:
    if lease_age_seconds is not None:
        write_lease(tmp_path, lease_age_seconds)
    api = Api(run_of(tmp_path), WorkerStatus.OFFLINE)
    assert seconds_until_marked(api) == marked_after_seconds


def test_runs_of_a_worker_that_reports_stay(tmp_path: Path) -> None:
    write_lease(tmp_path, 200.0)
    assert seconds_until_marked(Api(run_of(tmp_path), WorkerStatus.ONLINE)) is None


def test_a_run_in_a_container_does_not_depend_on_its_worker(tmp_path: Path) -> None:
    write_lease(tmp_path, 200.0)
    assert seconds_until_marked(Api(run_of(tmp_path, "kubernetes"), WorkerStatus.OFFLINE)) is None


def test_an_outage_of_the_server_does_not_count(tmp_path: Path) -> None:
    write_lease(tmp_path, 200.0)
    api, clock = Api(run_of(tmp_path), WorkerStatus.OFFLINE), Clock()
    client, machines = cast(SyncPrefectClient, api), GoneMachines(clock)
    assert machines.end_runs(client) == 0
    clock.now = 3600.0  # the server was away, and no worker has reported to it yet
    assert machines.end_runs(client) == 0
    api.status = WorkerStatus.ONLINE
    clock.now += LOOKS_SECONDS
    assert machines.end_runs(client) == 0
    api.status = WorkerStatus.OFFLINE
    assert seconds_until_marked(api) == 60.0
