"""Find runs of the work pool that ended before they took their lock.

A run holds a lock from the moment its flow begins (shardmill.flows.flow_runs.lost_runs). Before that, its
worker answers for it. If the worker is killed, or the server is away when the worker reports, nobody does.
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psutil

from shardmill.flows import home
from shardmill.flows.flow_runs.lost_runs import is_held, set_crashed
from shardmill.flows.server.deployments import POOL
from shardmill.infra.digests import digest_of
from shardmill.infra.processes.trees import lives

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

# A worker starts the process of a run within this time, also on a busy machine.
_START_SECONDS = 100


def worker_name() -> str:
    """Name of the worker of `shardmill up`: the same after each start."""
    return f"ProcessWorker-{socket.gethostname()}-{digest_of(str(home.home()))[:8]}"


def end_stale_runs() -> int:
    """Mark the runs of a killed worker as Crashed; return their number.

    They would stay Running for ever and hold their deployment's only slot. Call this before the worker
    starts, so that its own runs are not among them. While workers of other machines live, nothing is marked,
    since the runs may be theirs; the locks of runs tell which ones were killed.
    """
    return _end(lambda _: True)


def end_vanished_runs() -> int:
    """Mark the runs as Crashed whose process is gone, while the worker lives; return their number."""
    before = datetime.now(UTC) - timedelta(seconds=_START_SECONDS)

    def has_vanished(run: FlowRun) -> bool:
        began = run.state.timestamp if run.state is not None else None
        is_young = began is None or began > before
        return not (is_young or is_held(run.id) or _process_lives(run.infrastructure_pid))

    return _end(has_vanished)


def _end(is_stale: Any) -> int:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import WorkerStatus

    with get_client(sync_client=True) as client:
        stale = [run for run in _unfinished(client) if _may_be_of_this_worker(run) and is_stale(run)]
        if not stale:
            return 0
        workers = client.read_workers_for_work_pool(POOL)
        if any(worker.status == WorkerStatus.ONLINE and worker.name != worker_name() for worker in workers):
            return 0
        for run in stale:
            set_crashed(client, run.id, "The worker was killed; the next run continues its work")
    return len(stale)


def _may_be_of_this_worker(run: FlowRun) -> bool:
    """Tell whether no other worker took a run; such runs are judged in ``gone_machines``."""
    return run.labels.get("prefect.worker.name", worker_name()) == worker_name()


def _unfinished(client: SyncPrefectClient) -> list[FlowRun]:
    """The runs of the pool that have begun and have not ended."""
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        WorkPoolFilter,
        WorkPoolFilterName,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.client.schemas.sorting import FlowRunSort

    begun = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=begun))),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL])),
        sort=FlowRunSort.START_TIME_DESC,
        limit=200,
    )


def _process_lives(process_id: str | None) -> bool:
    try:
        return lives(psutil.Process(int(process_id or "")))
    except (ValueError, psutil.NoSuchProcess):
        return False
