"""A job's process under a flow run: its events and lines reach Prefect, and it never outlives the run.

The jobs themselves know nothing of Prefect; they speak the events of ``infra.progress``. Here each event goes
three ways: to listeners of this process (the terminal bar of a command), into the run's logs, and, where it
says how far the work is, into the run's live progress artifact.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.artifacts import LiveProgress
from infra.children import run_child
from infra.errors import Cancelled
from infra.progress import Event, emit

Logger = logging.Logger | logging.LoggerAdapter[Any]

PREPARE: tuple[str, ...] = (sys.executable, "-m", "beam_jobs.prepare")
TRAIN: tuple[str, ...] = (sys.executable, "-m", "training.train")
PROFILE: tuple[str, ...] = (sys.executable, "-m", "training.profile")

_LOG_SECONDS = 10.0
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job that ended well reported: its result, and the metrics events on the way."""

    result: dict[str, Any]
    metrics: list[dict[str, Any]] = field(default_factory=list)


def run_job(command: Sequence[str], *, key: str, log: Logger) -> JobReport:
    """Run a job's command to its end under the flow run of this context.

    Args:
        command: argv of a process that speaks the events of infra.progress.
        key: of the run's live progress artifact.
        log: the run's logger.

    Raises:
        ShardmillError: the job's own error. ChildDied: it ended without a result.
        Cancelled: Ctrl-C or SIGTERM; the process tree is gone, and the same command goes on from there.
        TerminationSignal: likewise, in a run that a worker started.
    """
    from prefect.exceptions import TerminationSignal

    follow_worker()
    with LiveProgress(key) as live:
        relay = _Relay(log, live)
        try:
            child = run_child(command, on_event=relay.event, on_line=relay.line)
        except (KeyboardInterrupt, TerminationSignal):
            if _started_by_worker():
                raise  # Prefect itself knows what it meant by its signal
            raise Cancelled(
                "stopped on request", "run the same command again: it goes on where it was"
            ) from None
        result = child.reported()
    return JobReport(result, relay.metrics)


class _Relay:
    """Sends a child's events and lines where people look for them. Called on the threads of run_child."""

    def __init__(self, log: Logger, live: LiveProgress) -> None:
        self.metrics: list[dict[str, Any]] = []
        self._log = log
        self._live = live
        self._last_logged: dict[str, float] = {}

    def event(self, event: Event) -> None:
        kind = event.get("event")
        # The result and the error end this job, not the process that runs it.
        if kind not in ("result", "error"):
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
    """In a run that a worker started: end when that worker is gone, as the job ends when this run is gone.

    Prefect starts each run in a session of its own, which a worker that is killed leaves behind: without an
    API, without anyone who could cancel it, and with the job still running.
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
