"""Correct Prefect's history after a process was killed: runs, runs inside them, tasks, and schedules.

A run is lost if its process no longer holds the lock of the run (shardmill.flows.flow_runs.lost_runs): the
kernel releases it. Heartbeats of runs play no part, so a slow or restarted server makes no run look dead.

1. A run whose process is gone becomes Crashed, or Cancelled if somebody had asked for that; so does a run
   whose machine is gone (shardmill.flows.server.tidying.stale_runs).
2. A run inside a run that has ended ends with it.
3. The tasks of runs that crashed, failed or were cancelled end with them.
4. Automatic runs that wait beside another one that does the same are skipped, and concurrency slots of
   deployments that no run holds are released.
5. A run of a schedule or an inbox that crashed is started again, once; it continues the work.
6. Runs without a server become flow runs (shardmill.flows.flow_runs.run_records).

Runs and deployments of others on the same server are left alone (shardmill.flows.flow_runs.api_requests).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx

from shardmill.flows.flow_runs import lost_runs, run_records
from shardmill.flows.flow_runs.api_requests import OWN, in_states, own_deployments, prefect_client, run_filter
from shardmill.flows.scheduling.coalescing import AUTOMATIC_TAG, is_automatic, skip_repeated
from shardmill.flows.server.tidying.slots import Slots
from shardmill.flows.server.tidying.stale_runs import GoneMachines, end_vanished_runs
from shardmill.infra.readable import counted

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

RESTARTED_TAG = "restarted"

_PAGE = 200
# Tasks report their end a while after their run has ended.
_TASK_SECONDS = 20
# An older crash is history: the schedule has fired meanwhile, or a person has seen it.
_RESTART_SECONDS = 3600


class Reaper:
    """Remembers the crashed runs that it has seen, to save requests to the server.

    Args:
        has_worker: whether the worker of `shardmill up` runs beside it: then runs that this worker has lost
            before their flow began are marked too. Nobody else can tell whose such a run is: it may begin
            in a container, or on a machine whose worker is away for a moment.
    """

    def __init__(self, *, has_worker: bool) -> None:
        self._has_worker = has_worker
        self._seen: set[UUID] = set()
        self._gone_machines = GoneMachines()
        # In the server of `shardmill up`, leases never expire
        # (shardmill.flows.server.services.server_settings).
        self._slots = Slots(leases_expire=not has_worker)

    def reap(self) -> list[str]:
        """Put the history in order once; return a line for each change.

        Raises:
            httpx.HTTPError: The server does not answer; the next call continues.
        """
        lost = lost_runs.mark_lost_commands() + lost_runs.mark_lost_subflows()
        if self._has_worker:
            lost += end_vanished_runs()
        with prefect_client() as client:
            lost += self._gone_machines.end_runs(client)
            tasks = _end_tasks(client)
            skip_repeated(client)
            slots = self._slots.give_back(client)
            restarted = self._restart(client)
        taken = run_records.take_over_records()
        said = [
            (lost, f"marked {counted(lost, 'run')} as crashed whose process was killed"),
            (tasks, f"ended {counted(tasks, 'task')} of runs that have ended"),
            (slots, f"released {counted(slots, 'slot')} of deployments that no run held"),
            (restarted, f"started {counted(restarted, 'crashed scheduled run')} again"),
            (taken, f"took over {counted(taken, 'run')} without a server"),
        ]
        return [line for number, line in said if number]

    def _restart(self, client: SyncPrefectClient) -> int:
        candidates = [run for run in _crashed(client) if run.id not in self._seen and may_restart(run)]
        own = own_deployments(client, (run.deployment_id for run in candidates if run.deployment_id))
        started = _known_keys(client, [_restart_key(run) for run in candidates])
        number = 0
        for run in candidates:
            if run.deployment_id in own and _restart_key(run) not in started:
                number += _start_again(client, run)
            self._seen.add(run.id)
        return number


def _restart_key(run: FlowRun) -> str:
    return f"restart-{run.id}"


def _known_keys(client: SyncPrefectClient, keys: list[str]) -> set[str]:
    """Return the keys under which a run exists already."""
    if not keys:
        return set()
    known = client.read_flow_runs(flow_run_filter=run_filter(idempotency_key={"any_": keys}), limit=_PAGE)
    return {run.idempotency_key for run in known if run.idempotency_key}


def _start_again(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Start a crashed run again; return False if its deployment is gone or refuses its parameters now."""
    from prefect.exceptions import ObjectNotFound

    assert run.deployment_id is not None
    try:
        client.create_flow_run_from_deployment(
            run.deployment_id,
            parameters=run.parameters,
            tags=[AUTOMATIC_TAG, RESTARTED_TAG],
            # Two reapers at once: the second one is given the run of the first.
            idempotency_key=_restart_key(run),
        )
    except ObjectNotFound:
        return False
    except httpx.HTTPStatusError as error:
        if error.response.is_server_error:
            raise
        return False
    return True


def may_restart(run: FlowRun) -> bool:
    """Tell whether a crashed run is started again: no person started it, and it is not a second try."""
    return run.deployment_id is not None and is_automatic(run) and RESTARTED_TAG not in run.tags


def _crashed(client: SyncPrefectClient) -> list[FlowRun]:
    """The runs of Shardmill that crashed lately."""
    since = datetime.now(UTC) - timedelta(seconds=_RESTART_SECONDS)
    return client.read_flow_runs(
        flow_run_filter=run_filter(**OWN, state=in_states("CRASHED"), end_time={"after_": since}),
        limit=_PAGE,
    )


def _end_tasks(client: SyncPrefectClient) -> int:
    """Mark unfinished tasks of ended runs of Shardmill as Crashed; return their number."""
    from prefect.client.schemas.filters import TaskRunFilter
    from prefect.states import Crashed

    before = datetime.now(UTC) - timedelta(seconds=_TASK_SECONDS)
    left = client.read_task_runs(
        flow_run_filter=run_filter(
            **OWN, state=in_states("CRASHED", "FAILED", "CANCELLED"), end_time={"before_": before}
        ),
        task_run_filter=TaskRunFilter.model_validate({"state": in_states("RUNNING", "PENDING")}),
        limit=_PAGE,
    )
    for task in left:
        state: Any = Crashed(message="The run of this task has ended")
        client.set_task_run_state(task.id, state, force=True)
    return len(left)
