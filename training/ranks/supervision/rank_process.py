"""One rank as its parent sees it: a child process with a heartbeat, a log and events."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from shardmill.infra.errors import ShardmillError, from_event
from shardmill.infra.processes.children import ChildOutput, started
from shardmill.infra.progress import Event
from shardmill.training.ranks import heartbeat
from shardmill.training.ranks.heartbeat import Beat
from shardmill.training.ranks.supervision.processor_use import ProcessorUse

_LOG_LINES = 12
_BRIEF_SECONDS = 1.0  # during a shorter silence the use of processors is not measured


@dataclass(frozen=True, slots=True)
class RankStart:
    """How a rank is started.

    Attributes:
        rank: its number.
        command: the command of its process.
        environment: variables in addition to those of this process.
        log_path: the file for its output; None: the standard error of this process.
        heartbeat_path: the file for its heartbeat.
    """

    rank: int
    command: Sequence[str]
    environment: Mapping[str, str]
    log_path: Path | None
    heartbeat_path: Path


class RankProcess:
    """A running rank.

    Attributes:
        rank: its number.
        ended_at: when it was first seen to have ended (monotonic seconds); None: it runs.
    """

    def __init__(self, start: RankStart, on_event: Callable[[int, Event], None]) -> None:
        """Start the process. ``on_event`` is called with its events, on another thread."""
        self.rank = start.rank
        self.ended_at: float | None = None
        self._heartbeat = start.heartbeat_path
        self._stopped_since: float | None = None
        self._use: ProcessorUse | None = None  # while it is silent
        self._started_at = time.monotonic()
        heartbeat.prepare(start.heartbeat_path)
        if start.log_path is not None:
            start.log_path.parent.mkdir(parents=True, exist_ok=True)
        variables = {**start.environment, heartbeat.PATH_VARIABLE: str(start.heartbeat_path)}
        self._resources = contextlib.ExitStack()
        self._process, events = self._resources.enter_context(started(start.command, variables, None))

        def relay(event: Event) -> None:
            on_event(start.rank, event)

        on_line = _print if start.log_path is None else None
        self._output = ChildOutput(self._process, events, relay, on_line, start.log_path)

    @property
    def beat(self) -> Beat:
        """Its latest beat."""
        return heartbeat.read(self._heartbeat)

    def silent_seconds(self) -> float:
        """Return the time since its latest sign of life, or since its start (seconds)."""
        return time.monotonic() - max(self.beat.at, self._started_at)

    def idle_seconds(self) -> float:
        """Return for how long it has been silent while its processes used no processor (seconds)."""
        if self.silent_seconds() < _BRIEF_SECONDS:
            self._use = None
            return 0.0
        self._use = self._use or ProcessorUse(self._process.pid)
        return self._use.idle_seconds()

    def stopped_seconds(self) -> float:
        """Return for how long it has been stopped by SIGSTOP (seconds); 0: it is not stopped."""
        try:
            is_stopped = psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED
        except psutil.Error:
            is_stopped = False
        if not is_stopped:
            self._stopped_since = None
            return 0.0
        self._stopped_since = self._stopped_since or time.monotonic()
        return time.monotonic() - self._stopped_since

    def poll(self) -> int | None:
        """Return its exit status; negative: the signal that ended it; None: it runs."""
        status = self._process.poll()
        if status is not None and self.ended_at is None:
            self.ended_at = time.monotonic()
            self._output.finish()
        return status

    @property
    def lost(self) -> str | None:
        """Always None: the machine of the rank is that of its parent."""
        return None

    @property
    def result(self) -> dict[str, Any] | None:
        """The result that it reported."""
        return self._output.result

    @property
    def error(self) -> ShardmillError | None:
        """The error that it reported."""
        return None if self._output.error is None else from_event(self._output.error)

    @property
    def last_lines(self) -> str:
        """The last lines that it printed."""
        return "\n".join(self._output.tail[-_LOG_LINES:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to all processes that it started."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Kill the processes of the rank that still run, and release its pipes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.poll()
        self._resources.close()


def _print(line: str) -> None:
    # The parent of the ranks prints the error of a rank, so it is left out here.
    if not line.startswith(("error: ", "remedy: ")):
        print(line, file=sys.stderr, flush=True)
