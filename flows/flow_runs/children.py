"""Run a job in a child process under a flow run, which it never outlives, and relay its events to Prefect.

The jobs do not know Prefect. They emit the events of ``shardmill.infra.progress``. Each event goes to the
listeners of this process (such as the terminal bar of a command), into the run's logs, and to the run's live
artifacts.

A worker ends its runs when they are cancelled, and only then; and after an outage of the server it may not do
even that. So the process of each run asks Prefect itself whether it was cancelled, suspended or deleted.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from shardmill.flows.flow_runs.api_requests import prefect_client
from shardmill.flows.flow_runs.running import run_job
from shardmill.flows.flow_runs.showing.failed import JobEnd
from shardmill.flows.flow_runs.showing.headline import headline
from shardmill.flows.flow_runs.showing.live import LivePage
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.flows.flow_runs.worker_process import begin_workers_run, is_started_by_worker
from shardmill.infra.errors import GO_ON, Cancelled, ShardmillError
from shardmill.infra.progress import Event
from shardmill.infra.readable import readable_figure

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

    seen: float | None = None  # when the run was first seen to be cancelled
    with prefect_client() as client:
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


Logger = logging.Logger | logging.LoggerAdapter[Any]

_LOG_SECONDS = 10.0
_WORKER_SECONDS = 8.0  # a worker ends a cancelled run sooner than that, if it does
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, slots=True)
class JobReport:
    """The result of a job that succeeded, and its event of inputs that cannot be used, if there are any."""

    result: dict[str, Any]
    lost: dict[str, Any] = field(default_factory=dict)


def run_child_job(
    command: Sequence[str],
    *,
    job: str,
    keys: Keys,
    log: Logger,
    in_words: Callable[[dict[str, Any]], str] = headline,
) -> JobReport:
    """Run a job's command to its end under the flow run of this context.

    Args:
        command: argv of a process that emits the events of shardmill.infra.progress.
        job: Name of the job.
        keys: Keys of the run's artifacts.
        log: Logger of the run.
        in_words: Returns the outcome in words, from the result.

    Raises:
        ShardmillError: The job reported an error. Its cause is a ``JobEnd``.
        ChildDied: The job ended without a result.
        Cancelled: Ctrl-C, SIGTERM, or the run was stopped in Prefect. The process tree is gone, and the same
            command continues from there.
        TerminationSignal: The same, in a run that a worker started.
    """
    from prefect.exceptions import TerminationSignal

    begin_workers_run()
    page = RunPage.of_this_run(with_parent=True)
    with LivePage(page, keys, job) as live, _stop_requests() as stop:
        relay = _Relay(log, live)
        try:
            child = run_job(command, relay.event, relay.line, cancel=stop.event)
        except (KeyboardInterrupt, TerminationSignal):
            if is_started_by_worker():
                raise  # Prefect handles its own signal
            raise Cancelled("stopped on request", GO_ON) from None
        except Cancelled as cancelled:
            raise Cancelled(stop.reason or cancelled.message, GO_ON) from None
        try:
            result = child.reported()
        except Cancelled:
            raise
        except ShardmillError as error:
            raise error from JobEnd(f"at {live.percent:.0f} %, {live.text}", child.last_lines, relay.lost)
        live.end(in_words(result))
    return JobReport(result, relay.lost)


def _stop_requests() -> contextlib.AbstractContextManager[StopRequest]:
    """Requests to stop the flow run of this context, or the run that it is a part of."""
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return contextlib.nullcontext(StopRequest())
    runs = [UUID(found) for found in (flow_run.id, flow_run.parent_flow_run_id) if found]
    return watched_runs(runs, worker_seconds=_WORKER_SECONDS if is_started_by_worker() else 0.0)


class _Relay:
    """Sends the events and lines of a job to Prefect. Called on the threads that read them."""

    def __init__(self, log: Logger, live: LivePage) -> None:
        self.lost: dict[str, Any] = {}
        self._log = log
        self._live = live
        self._last_logged: dict[str, float] = {}

    def event(self, event: Event) -> None:
        kind = event.get("event")
        self._live.take(event)
        if kind in ("stage", "progress"):
            self._progress(event)
        elif kind == "log":
            self._log.log(_LEVELS.get(str(event.get("level")), logging.INFO), "%s", event.get("message"))
        elif kind == "lost":
            self.lost = dict(event)
        elif kind == "error":
            self._log.error("%s", event.get("message"))
            if event.get("remedy"):
                self._log.error("what to do: %s", event["remedy"])
        elif kind == "metrics" and event.get("split") != "train":
            figures = {name: value for name, value in event.items() if name not in ("event", "time")}
            self._log.info("%s", ", ".join(_said(name, value) for name, value in figures.items()))

    def line(self, line: str) -> None:
        # The error and its remedy come as an event too.
        if line.strip() and not line.startswith(("error: ", "remedy: ")):
            self._log.info("%s", line)

    def _progress(self, event: Event) -> None:
        stage, done, total = str(event["stage"]), event.get("done") or 0, event.get("total")
        is_bound = event["event"] == "stage" or (total is not None and done >= total)
        if self._is_due("progress") or (is_bound and self._live.counts(stage)):
            self._log.info("%.0f %%, %s", self._live.percent, self._live.text)

    def _is_due(self, what: str) -> bool:
        now = time.monotonic()
        if now - self._last_logged.get(what, -_LOG_SECONDS) < _LOG_SECONDS:
            return False
        self._last_logged[what] = now
        return True


def _said(name: str, value: object) -> str:
    if isinstance(value, float):
        from shardmill.training.metrics.figures import FIGURES

        return FIGURES[name].precise(value) if name in FIGURES else f"{name} {readable_figure(value)}"
    return f"{name} {value}"
