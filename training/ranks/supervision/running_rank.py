"""One rank as its parent sees it, on any machine; here also a child process with a heartbeat and a log."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from shardmill.infra import progress
from shardmill.infra.errors import ShardmillError, from_event
from shardmill.infra.processes.children import ChildOutput, started
from shardmill.infra.processes.trees import descendants
from shardmill.infra.progress import Event
from shardmill.training.ranks import heartbeat
from shardmill.training.ranks.heartbeat import Beat

_LOG_LINES = 12
_BRIEF_SECONDS = 1.0  # during a shorter silence the use of processors is not measured
_LOOK_SECONDS = 0.5
# Idle threads of TensorFlow, which only poll, use a third of this share. A larger share would be too much to
# expect of a rank that shares its processors with twenty other programs.
_LEAST_PART = 0.012
_LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank at one look.

    Attributes:
        status: the exit status; negative: the signal that ended it; None: it runs.
        beat: the latest heartbeat; ``at`` has no meaning on another machine.
        silent_seconds: time since the latest sign of life, or since the start.
        idle_seconds: for how long it has been silent while its processes used no processor.
        stopped_seconds: for how long it has been stopped by SIGSTOP; 0: it is not stopped.
        result: the result that it reported.
        error: the error that it reported.
        last_lines: the last lines that it printed before it ended.
        lost: why it is lost, such as that its machine is gone; None: it is not.
    """

    status: int | None = None
    beat: Beat = field(default_factory=Beat)
    silent_seconds: float = 0.0
    idle_seconds: float = 0.0
    stopped_seconds: float = 0.0
    result: dict[str, Any] | None = None
    error: ShardmillError | None = None
    last_lines: str = ""
    lost: str | None = None


def relay(rank: int, event: Event) -> None:
    """Emit an event of a rank in this process: all of rank 0 but its end, of others speeds and warnings."""
    kind = event.get("event")
    if kind in ("result", "error"):
        return
    if rank == 0 or kind == "rank":
        progress.emit(event)
    elif kind == "log" and event.get("level") != "info":
        progress.emit({**event, "message": f"rank {rank}: {event.get('message')}"})


class RunningRank(ABC):
    """A started rank. No method waits for it.

    Attributes:
        rank: its number.
        state: its state at the latest look.
        ended_at: when it was first seen to have ended (monotonic seconds); None: it runs.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.state = RankState()
        self.ended_at: float | None = None

    @property
    def runs(self) -> bool:
        """Whether it ran at the latest look."""
        return self.state.status is None

    def look(self) -> RankState:
        """Look at the rank, unless it has ended, and return its state."""
        if self.runs:
            self.state = self._seen()
            self.ended_at = None if self.runs else time.monotonic()
        return self.state

    @abstractmethod
    def _seen(self) -> RankState:
        """Return the present state."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the rank, if it runs, and to all processes that it started."""

    @abstractmethod
    def close(self) -> None:
        """Kill the rank's processes that still run, and release its resources."""


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


class RankProcess(RunningRank):
    """A rank that is a child of this process."""

    def __init__(self, start: RankStart, on_event: Callable[[int, Event], None] = relay) -> None:
        """Start the process. ``on_event`` is called with its number and its events, on another thread."""
        super().__init__(start.rank)
        self._heartbeat = start.heartbeat_path
        self._stopped_since: float | None = None
        self._use: _ProcessorUse | None = None  # while it is silent
        self._started_at = time.monotonic()
        heartbeat.prepare(start.heartbeat_path)
        if start.log_path is not None:
            start.log_path.parent.mkdir(parents=True, exist_ok=True)
        variables = {**start.environment, heartbeat.PATH_VARIABLE: str(start.heartbeat_path)}
        self._resources = contextlib.ExitStack()
        self._process, events = self._resources.enter_context(started(start.command, variables, None))
        on_line = _print if start.log_path is None else None
        on_own = partial(on_event, start.rank)
        self._output = ChildOutput(self._process, events, on_own, on_line, start.log_path)

    def _seen(self) -> RankState:
        status = self._process.poll()  # first, so that nothing is missed that it did before its end
        if status is not None:
            self._output.finish()
        output, beat = self._output, heartbeat.read(self._heartbeat)
        error = None if output.error is None else from_event(output.error)
        if status is not None:
            last_lines = "\n".join(output.tail[-_LOG_LINES:])
            return RankState(status, beat, result=output.result, error=error, last_lines=last_lines)
        silent = time.monotonic() - max(beat.at, self._started_at)
        idle, stopped = self._idle_seconds(silent), self._stopped_seconds()
        return RankState(None, beat, silent, idle, stopped, output.result, error)

    def _idle_seconds(self, silent_seconds: float) -> float:
        if silent_seconds < _BRIEF_SECONDS:
            self._use = None
            return 0.0
        self._use = self._use or _ProcessorUse(self._process.pid)
        return self._use.idle_seconds()

    def _stopped_seconds(self) -> float:
        try:
            is_stopped = psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED
        except psutil.Error:
            is_stopped = False
        if not is_stopped:
            self._stopped_since = None
            return 0.0
        self._stopped_since = self._stopped_since or time.monotonic()
        return time.monotonic() - self._stopped_since

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group of the rank, if it runs."""
        if self.look().status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Kill the processes of the rank that still run, and release its pipes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.look()
        self._resources.close()


def _print(line: str) -> None:
    # The parent of the ranks prints the error of a rank, so it is left out here.
    if not line.startswith(("error: ", "remedy: ")):
        print(line, file=sys.stderr, flush=True)


class _ProcessorUse:
    """Compares the processor time of a process and its descendants between two looks."""

    def __init__(self, pid: int) -> None:
        """Begin now."""
        self._pid = pid
        self._busy_at = self._looked_at = time.monotonic()
        self._used_seconds = self._used()

    def idle_seconds(self) -> float:
        """Return for how long they have neither used a processor nor waited for a disk (seconds)."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return self._looked_at - self._busy_at
        self._looked_at = now
        before, used = self._used_seconds, self._used()
        least = _LEAST_SECONDS + _LEAST_PART * (now - self._busy_at)
        if used is None or before is None or abs(used - before) > least:
            self._busy_at, self._used_seconds = now, used
        return now - self._busy_at

    def _used(self) -> float | None:
        """Return the processor time of all (seconds); None: one is gone, or waits for a disk."""
        seconds = 0.0
        try:
            for process in (psutil.Process(self._pid), *descendants(self._pid)):
                if process.status() == psutil.STATUS_DISK_SLEEP:
                    return None
                times = process.cpu_times()
                seconds += times.user + times.system
        except psutil.Error:
            return None
        return seconds
