"""Watch whether a flow run was cancelled, suspended or deleted in Prefect, to stop its job.

A worker ends its runs when they are cancelled, and only then; and after an outage of the server it may not do
even that. So the process of each run asks Prefect itself.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_POLL_SECONDS = 2.0
_CANCELLED = "the run was cancelled in Prefect"


class StopRequest:
    """A request to stop: ``event`` is set when it comes, and ``reason`` says why."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.reason = ""

    def make(self, reason: str) -> None:
        """Ask the job to stop."""
        self.reason = reason
        self.event.set()


@contextlib.contextmanager
def watched_runs(
    run_ids: list[UUID], *, worker_seconds: float = 0.0, poll_seconds: float = _POLL_SECONDS
) -> Iterator[StopRequest]:
    """Watch flow runs until the block ends. Yield a request, made when one of them is cancelled.

    Args:
        run_ids: ids of the flow runs.
        worker_seconds: time for the worker of a cancelled run to end it by a signal.
        poll_seconds: time between two questions.
    """
    request, done = StopRequest(), threading.Event()
    watcher = threading.Thread(
        target=_watch,
        args=(run_ids, request, done, worker_seconds, poll_seconds),
        name="watch-flow-run",
        daemon=True,
    )
    watcher.start()
    try:
        yield request
    finally:
        done.set()


def _watch(
    run_ids: list[UUID],
    request: StopRequest,
    done: threading.Event,
    worker_seconds: float,
    poll_seconds: float,
) -> None:
    import httpx
    from prefect.client.orchestration import get_client

    seen: float | None = None  # when the run was first seen to be cancelled
    with get_client(sync_client=True) as client:
        while not done.wait(poll_seconds):
            # A server that is away now may be back later: the run goes on meanwhile.
            with contextlib.suppress(httpx.HTTPError):
                for run_id in run_ids:
                    reason = _reason_to_stop(client, run_id)
                    if reason == _CANCELLED:
                        seen = time.monotonic() if seen is None else seen
                        if time.monotonic() < seen + worker_seconds:
                            continue
                    if reason:
                        request.make(reason)
                        return


def _reason_to_stop(client: SyncPrefectClient, run_id: UUID) -> str | None:
    from prefect.exceptions import ObjectNotFound

    try:
        state = client.read_flow_run(run_id).state
    except ObjectNotFound:
        return "the run was deleted in Prefect"
    if state is None:
        return None
    if state.is_paused():
        return "the run was suspended in Prefect"
    if state.is_cancelling() or state.is_cancelled():
        return _CANCELLED
    return f"the run was marked as {state.name} in Prefect" if state.is_final() else None
