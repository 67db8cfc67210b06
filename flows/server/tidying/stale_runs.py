"""Mark runs that nobody reports: of the work pool before they took their lock, and of machines that are gone.

A run holds a lock from the moment its flow begins (shardmill.flows.flow_runs.lost_runs). Before that, its
worker answers for it. If the worker is killed, or the server is away when the worker reports, nobody does.

The process and the lock file of a run on another machine cannot be seen from here. Two signs tell that the
machine is gone: its worker is offline, and the lease of the dataset has expired. A worker that only fails to
reach the server is offline too; its run renews the lease meanwhile, and stays. Where no lease tells anything
(a training holds none, and a dataset may lie on the disk of the other machine), a run is marked once its
worker has been offline for ten minutes.

Time counts only while the server answers: after an outage of the server, all workers are offline for a
moment. Only workers of type "process" run on the machine of their runs.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psutil

from shardmill.flows import home
from shardmill.flows.flow_runs.api_requests import IN_PROGRESS, OWN, prefect_client, run_filter
from shardmill.flows.flow_runs.lost_runs import is_held, set_crashed
from shardmill.flows.parameters import root_or_default
from shardmill.flows.server.deployments import POOL
from shardmill.infra.dataset.lock import seen_holders
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import ShardmillError
from shardmill.infra.processes.trees import lives
from shardmill.infra.storage.filesystem import Storage

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
    """Mark runs whose process is gone although their worker lives as Crashed; return their number."""
    before = datetime.now(UTC) - timedelta(seconds=_START_SECONDS)

    def has_vanished(run: FlowRun) -> bool:
        began = run.state.timestamp if run.state is not None else None
        is_young = began is None or began > before
        return not (is_young or is_held(run.id) or _process_lives(run.infrastructure_pid))

    return _end(has_vanished)


def _end(is_stale: Any) -> int:
    from prefect.client.schemas.objects import WorkerStatus

    with prefect_client() as client:
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
    from prefect.client.schemas.filters import WorkPoolFilter, WorkPoolFilterName
    from prefect.client.schemas.sorting import FlowRunSort

    return client.read_flow_runs(
        flow_run_filter=run_filter(**IN_PROGRESS),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL])),
        sort=FlowRunSort.START_TIME_DESC,
        limit=200,
    )


def _process_lives(process_id: str | None) -> bool:
    try:
        return lives(psutil.Process(int(process_id or "")))
    except (ValueError, psutil.NoSuchProcess):
        return False


# A worker that lives reports every 30 s, also to a server that was away.
_OFFLINE_SECONDS = 60.0
_OFFLINE_SECONDS_WITHOUT_LEASE = 600.0
# So much of the time between two looks counts: the server may have been away in between.
_LOOK_SECONDS = 30.0
_PAGE = 200
_MESSAGE = "The machine of this run is gone; the next run continues its work"


@dataclass(frozen=True, slots=True)
class _Worker:
    pool: str
    name: str


class GoneMachines:
    """Remembers for how long the workers of runs have been offline.

    Args:
        clock: the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_at: float | None = None
        self._offline_seconds: dict[_Worker, float] = {}

    def end_runs(self, client: SyncPrefectClient) -> int:
        """Mark the runs whose machine is gone as Crashed, and return their number."""
        runs = _begun_runs(client)
        offline = _offline(client, {worker for worker, _ in runs})
        now = self._clock()
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, _LOOK_SECONDS)
        self._looked_at = now
        before = self._offline_seconds
        self._offline_seconds = {
            worker: before[worker] + passed if worker in before else 0.0 for worker in offline
        }
        lost = [
            run
            for worker, run in runs
            if worker in offline and self._offline_seconds[worker] >= _patience_seconds(run)
        ]
        for run in lost:
            set_crashed(client, run.id, _MESSAGE)
        return len(lost)


def _begun_runs(client: SyncPrefectClient) -> list[tuple[_Worker, FlowRun]]:
    """The runs of Shardmill that have begun and not ended, with the worker that started their process."""
    found = client.read_flow_runs(flow_run_filter=run_filter(**OWN, **IN_PROGRESS), limit=_PAGE)
    of_workers = [run for run in found if run.labels.get("prefect.worker.type") == "process"]
    return [
        (_Worker(str(run.labels["prefect.work-pool.name"]), str(run.labels["prefect.worker.name"])), run)
        for run in of_workers
    ]


def _offline(client: SyncPrefectClient, workers: Iterable[_Worker]) -> set[_Worker]:
    """Return the workers that are offline or unknown to the server."""
    from prefect.client.schemas.objects import WorkerStatus
    from prefect.exceptions import ObjectNotFound

    offline = set(workers)
    for pool in sorted({worker.pool for worker in offline}):
        with contextlib.suppress(ObjectNotFound):
            known = client.read_workers_for_work_pool(pool)
            offline -= {_Worker(pool, one.name) for one in known if one.status == WorkerStatus.ONLINE}
    return offline


def _patience_seconds(run: FlowRun) -> float:
    """How long the worker of a run may be offline before the run counts as lost (seconds)."""
    began = run.start_time.timestamp() if run.start_time is not None else 0.0
    try:
        dataset = Storage.at(root_or_default(run.parameters.get("root"))).child(run.parameters["dataset"])
        holders = seen_holders(dataset)
    except (ShardmillError, OSError, KeyError):
        holders = []
    if not all(holder.has_expired for holder in holders):
        return float("inf")
    # An older entry is of an earlier run.
    is_of_run = any(holder.renewed_at >= began for holder in holders)
    return _OFFLINE_SECONDS if is_of_run else _OFFLINE_SECONDS_WITHOUT_LEASE
