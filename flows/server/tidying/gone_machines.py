"""Mark the runs of a machine that is gone for good, be it by power, network or its own end.

The process of such a run cannot be seen from here, and its lock file lies on its own machine. Two signs tell
that it is gone: its worker is offline, and the lease of its dataset has expired. A worker that only fails to
reach the server is offline too; its run renews the lease meanwhile, and stays. Where no lease tells anything
(a training holds none, and a dataset may lie on the disk of the other machine), a run is marked once its
worker has been offline for ten minutes.

Time counts only while the server answers: after an outage of the server, all workers are offline for a
moment. Only workers of type "process" run on the machine of their runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardmill.flows.flow_runs.api_requests import in_progress
from shardmill.flows.flow_runs.lost_runs import set_crashed
from shardmill.flows.flow_runs.own_runs import own_runs
from shardmill.flows.parameters import root_or_default
from shardmill.infra.dataset.lock import seen_holders
from shardmill.infra.errors import ShardmillError
from shardmill.infra.storage.filesystem import Storage

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

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
        """Look once; mark the runs whose machine is gone as Crashed, and return their number."""
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
    from prefect.client.schemas.filters import FlowRunFilter

    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=own_runs(), state=in_progress()), limit=_PAGE
    )
    of_workers = [run for run in found if run.labels.get("prefect.worker.type") == "process"]
    return [
        (_Worker(str(run.labels["prefect.work-pool.name"]), str(run.labels["prefect.worker.name"])), run)
        for run in of_workers
    ]


def _offline(client: SyncPrefectClient, workers: Iterable[_Worker]) -> set[_Worker]:
    """Those of ``workers`` that are offline or unknown to the server."""
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
