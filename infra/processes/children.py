"""Child processes that report, can be cancelled, and never outlive their parent.

The parent starts a child in a session of its own with two pipes: *events*, on which the child writes JSON
lines (shardmill.infra.progress), and *lifeline*, which the child only watches. When the parent dies, however
it dies, the kernel closes the lifeline and the child kills its own process group. When the parent is
cancelled, it stops the child's whole tree before it goes on unwinding.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from shardmill.infra.errors import GO_ON, Cancelled, ChildDied, from_event
from shardmill.infra.processes.process import DEFECT, LIFELINE_FD, REPORT_DEFECT, describe_status
from shardmill.infra.processes.trees import (
    GRACE_SECONDS,
    SAMPLE_SECONDS,
    MemorySampler,
    kill_tree,
    wait_for_end,
)
from shardmill.infra.progress import EVENTS_FD, Listener
from shardmill.infra.whole_job import TerminalProgress

_LAST_LINES = 40


class ChildOutput:
    """Two threads that read a child's events and lines, keep its result and error, and pass them on."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        events: IO[bytes],
        on_event: Listener | None,
        on_line: Callable[[str], None] | None,
        log_path: str | Path | None,
    ) -> None:
        self.result: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self._lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._on_event, self._on_line, self._log_path = on_event, on_line, log_path
        assert process.stdout is not None
        self._threads = [
            threading.Thread(target=self._read_events, args=(events,), daemon=True),
            threading.Thread(target=self._read_lines, args=(process.stdout,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def tail(self) -> list[str]:
        """The last lines."""
        return list(self._lines)

    def finish(self) -> None:
        """Wait for the last output of the child, but not for ever: a stray grandchild may hold the pipes."""
        for thread in self._threads:
            thread.join(timeout=GRACE_SECONDS)

    def _read_events(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # the last line of a child that was killed while it wrote
                if event.get("event") == "result":
                    self.result = event["result"]
                elif event.get("event") == "error":
                    self.error = event
                if self._on_event is not None:
                    self._on_event(event)

    def _read_lines(self, stream: IO[bytes]) -> None:
        with contextlib.ExitStack() as files:
            files.enter_context(stream)
            log = files.enter_context(Path(self._log_path).open("a")) if self._log_path else None
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                self._lines.append(line)
                if log is not None:
                    log.write(line + "\n")
                    log.flush()
                if self._on_line is not None:
                    self._on_line(line)


@dataclass(frozen=True)
class ChildResult:
    """Result of a child process.

    Attributes:
        returncode: exit status; negative if a signal ended it.
        result: the result that the child gave to ``progress.result``, or None.
        error: the child's "error" event, or None.
        peak_memory_bytes: largest memory of its process tree; shared memory counts once.
        seconds: from its start to its end.
        last_lines: the last lines that it printed.
    """

    returncode: int
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    peak_memory_bytes: int
    seconds: float
    last_lines: list[str] = field(default_factory=list)

    def raise_for_status(self) -> None:
        """Raise the error that ended the child, if any.

        Raises:
            ShardmillError: the child's own error, ``Cancelled``, or ``ChildDied`` with its last lines.
        """
        if self.returncode == 0:
            return
        if self.error is not None:
            raise from_event(self.error)
        if self.returncode in (130, -signal.SIGINT, -signal.SIGTERM):
            raise Cancelled("stopped on request", GO_ON)
        if self.returncode == -signal.SIGKILL:
            how, remedy = "was killed by SIGKILL", f"{GO_ON} (SIGKILL most often means that memory ran out)"
        elif self.returncode < 0:
            how, remedy = f"was killed by {describe_status(self.returncode)}", GO_ON
        elif self.returncode == DEFECT:
            how, remedy = "ended with an unexpected exception", REPORT_DEFECT
        else:
            how, remedy = f"ended with status {self.returncode}", GO_ON
        tail = "\n".join(self.last_lines[-12:])
        raise ChildDied(f"a child process {how}" + (f"; it last said:\n{tail}" if tail else ""), remedy)

    def reported(self) -> dict[str, Any]:
        """Return the result that the child gave to ``progress.result``.

        Raises:
            ShardmillError: see ``raise_for_status``. ChildDied: it finished without a result.
        """
        self.raise_for_status()
        if self.result is None:
            raise ChildDied("the job finished without returning a result", REPORT_DEFECT)
        return self.result


class RunningChild:
    """A child process that was started; ``wait`` for its end."""

    def __init__(self, process: subprocess.Popen[bytes], output: ChildOutput) -> None:
        self._process, self._output = process, output
        self._begun = time.monotonic()
        self._memory = MemorySampler(process.pid)

    def has_ended(self, within_seconds: float) -> bool:
        """Wait for the end for so long at most, and tell whether it came."""
        if wait_for_end(self._process, within_seconds):
            return True
        self._memory.look()
        return False

    def wait(self, cancel: threading.Event | None = None) -> ChildResult:
        """Wait for the end of the child and of its output; see ``run_child``."""
        try:
            while not self.has_ended(SAMPLE_SECONDS):
                if cancel is not None and cancel.is_set():
                    raise Cancelled("stopped on request", GO_ON)
        except BaseException:
            kill_tree(self._process)
            raise
        finally:
            self._output.finish()
        return ChildResult(
            self._process.returncode,
            self._output.result,
            self._output.error,
            self._memory.peak_bytes,
            time.monotonic() - self._begun,
            self._output.tail,
        )


def run_child(
    argv: Sequence[str],
    *,
    on_event: Listener | None = None,
    on_line: Callable[[str], None] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    cancel: threading.Event | None = None,
    log_path: str | Path | None = None,
) -> ChildResult:
    """Run ``argv`` to its end and relay its events and lines.

    Args:
        argv: the command.
        on_event: called with each event, on a thread of its own.
        on_line: called with each line the child prints (standard output and error), likewise.
        env: variables on top of this process's own.
        cwd: the child's working folder.
        cancel: set it from another thread to stop the child.
        log_path: file to which the child's lines are appended.

    Raises:
        Cancelled: ``cancel`` was set; the tree is gone.
        BaseException: any exception that reaches this process meanwhile (KeyboardInterrupt, Prefect's
            TerminationSignal); the tree is gone before it propagates.
    """
    with started(argv, env, cwd) as (process, events):
        return RunningChild(process, ChildOutput(process, events, on_event, on_line, log_path)).wait(cancel)


def result_of(argv: Sequence[str], on_line: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Run the command of a job to its end, show its progress on standard error, and return its result.

    Args:
        argv: the command, which emits the events of shardmill.infra.progress.
        on_line: called with each line that the child prints; None drops them.

    Raises:
        ShardmillError: the job reported an error. ChildDied: it ended without a result.
        BaseException: see ``run_child``.
    """
    with TerminalProgress() as show:
        return run_child(argv, on_event=show, on_line=on_line).reported()


@contextlib.contextmanager
def running_child(
    argv: Sequence[str], on_event: Listener, on_line: Callable[[str], None]
) -> Iterator[RunningChild]:
    """Start ``argv`` and relay its events and lines; its tree is gone when the block ends."""
    with started(argv, None, None) as (process, events):
        try:
            yield RunningChild(process, ChildOutput(process, events, on_event, on_line, None))
        finally:
            if process.poll() is None:
                kill_tree(process)


@contextlib.contextmanager
def started(
    argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Start a child in a session of its own; the block gets its process and the stream of its events.

    When the block ends, its lifeline closes, so it kills itself if it still runs.
    """
    events_read, events_write = os.pipe()
    lifeline_read, lifeline_write = os.pipe()
    variables = {
        **os.environ,
        **(env or {}),
        EVENTS_FD: str(events_write),
        LIFELINE_FD: str(lifeline_read),
        "PYTHONUNBUFFERED": "1",
    }
    try:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(events_write, lifeline_read),
                start_new_session=True,
                env=variables,
                cwd=cwd,
            )
        except OSError:
            os.close(events_read)
            raise
        finally:
            os.close(events_write)
            os.close(lifeline_read)
        yield process, os.fdopen(events_read, "rb")
    finally:
        os.close(lifeline_write)
