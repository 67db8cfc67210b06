"""Run a job in a child process under a flow run, which it never outlives, and relay its events to Prefect.

The jobs do not know Prefect. They emit the events of ``infra.progress``. Each event goes to the listeners of
this process (such as the terminal bar of a command), into the run's logs, and, when it tells progress, into
the run's live progress artifact.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from flows.flow_runs.artifacts import LiveProgress
from flows.flow_runs.cancel_watch import StopRequest, watched_runs
from infra.errors import GO_ON, Cancelled
from infra.processes.children import run_child
from infra.progress import Event, emit

Logger = logging.Logger | logging.LoggerAdapter[Any]

PREPARE: tuple[str, ...] = (sys.executable, "-m", "beam_jobs.prepare")
TRAIN: tuple[str, ...] = (sys.executable, "-m", "training.train")
PROFILE: tuple[str, ...] = (sys.executable, "-m", "training.profile")

_LOG_SECONDS = 10.0
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, slots=True)
class JobReport:
    """The result and the metrics events of a job that succeeded."""

    result: dict[str, Any]
    metrics: list[dict[str, Any]] = field(default_factory=list)


def run_child_job(command: Sequence[str], *, key: str, log: Logger) -> JobReport:
    """Run a job's command to its end under the flow run of this context.

    Args:
        command: argv of a process that emits the events of infra.progress.
        key: Key of the run's live progress artifact.
        log: Logger of the run.

    Raises:
        ShardmillError: The job reported an error.
        ChildDied: The job ended without a result.
        Cancelled: Ctrl-C, SIGTERM, or the run was stopped in Prefect. The process tree is gone, and the same
            command continues from there.
        TerminationSignal: The same, in a run that a worker started.
    """
    from prefect.exceptions import TerminationSignal

    follow_worker()
    with LiveProgress(key) as live, _stop_requests() as stop:
        relay = _Relay(log, live)
        try:
            child = run_child(command, on_event=relay.event, on_line=relay.line, cancel=stop.event)
        except (KeyboardInterrupt, TerminationSignal):
            if _started_by_worker():
                raise  # Prefect handles its own signal
            raise Cancelled("stopped on request", GO_ON) from None
        except Cancelled as cancelled:
            raise Cancelled(stop.reason or cancelled.message, GO_ON) from None
        result = child.reported()
    return JobReport(result, relay.metrics)


def _stop_requests() -> contextlib.AbstractContextManager[StopRequest]:
    """Requests to stop the flow run of this context, or the run that it is a part of."""
    from prefect.runtime import flow_run

    if _started_by_worker() or flow_run.id is None:  # a worker ends its runs itself
        return contextlib.nullcontext(StopRequest())
    return watched_runs([UUID(found) for found in (flow_run.id, flow_run.parent_flow_run_id) if found])


class _Relay:
    """Sends the events and lines of a child to Prefect and listeners. Called on the threads of run_child."""

    def __init__(self, log: Logger, live: LiveProgress) -> None:
        self.metrics: list[dict[str, Any]] = []
        self._log = log
        self._live = live
        self._last_logged: dict[str, float] = {}

    def event(self, event: Event) -> None:
        kind = event.get("event")
        emit(event)
        if kind in ("stage", "progress"):
            self._progress(event, begins=kind == "stage")
        elif kind == "log":
            self._log.log(_LEVELS.get(str(event.get("level")), logging.INFO), "%s", event.get("message"))
        elif kind == "metrics":
            figures = {name: value for name, value in event.items() if name not in ("event", "time")}
            self.metrics.append(figures)
            if self._is_due("metrics"):
                self._log.info("%s", ", ".join(f"{name} {_short(value)}" for name, value in figures.items()))

    def line(self, line: str) -> None:
        if line.strip():
            self._log.info("%s", line)

    def _progress(self, event: Event, *, begins: bool) -> None:
        stage, done, total = str(event["stage"]), event.get("done") or 0, event.get("total")
        of = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        rate = f", {event['per_second']:,.0f}/s" if event.get("per_second") else ""
        text = f"{stage}: {of} {event.get('unit', '')}{rate}"
        self._live.show(100.0 * done / total if total else 0.0, text)
        finished = total is not None and done >= total
        if self._is_due(stage) or begins or finished:
            self._log.info("%s", text)

    def _is_due(self, what: str) -> bool:
        now = time.monotonic()
        if now - self._last_logged.get(what, -_LOG_SECONDS) < _LOG_SECONDS:
            return False
        self._last_logged[what] = now
        return True


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _started_by_worker() -> bool:
    return "PREFECT__FLOW_RUN_ID" in os.environ


_watcher: threading.Thread | None = None


def follow_worker() -> None:
    """End this process when the worker that started it is gone.

    Prefect starts each run in a session of its own, and such a run would outlive a killed worker: nobody
    could cancel it, and its job would continue.
    """
    global _watcher
    if _watcher is not None or not _started_by_worker():
        return
    worker = os.getppid()

    def watch() -> None:
        while os.getppid() == worker:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)

    _watcher = threading.Thread(target=watch, name="follow-worker", daemon=True)
    _watcher.start()
