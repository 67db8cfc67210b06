"""Watch whether a flow run was cancelled, suspended or deleted in Prefect, to stop its job.

A worker ends the runs that it started. A run that a command started has no worker, so its own process asks
Prefect.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_POLL_SECONDS = 2.0


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
def watched_runs(run_ids: list[UUID]) -> Iterator[StopRequest]:
    """Watch flow runs until the block ends. Yield a request, which is made when one of them shall stop."""
    request, done = StopRequest(), threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(run_ids, request, done), name="watch-flow-run", daemon=True
    )
    watcher.start()
    try:
        yield request
    finally:
        done.set()


def _watch(run_ids: list[UUID], request: StopRequest, done: threading.Event) -> None:
    import httpx
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        while not done.wait(_POLL_SECONDS):
            # A server that is away now may be back later: the run goes on meanwhile.
            with contextlib.suppress(httpx.HTTPError):
                for run_id in run_ids:
                    reason = _reason_to_stop(client, run_id)
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
        return "the run was cancelled in Prefect"
    return f"the run was marked as {state.name} in Prefect" if state.is_final() else None
