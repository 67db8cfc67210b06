"""Child processes that report, can be cancelled, and never outlive their parent.

The parent starts a child in a session of its own with two pipes: *events*, on which the child writes JSON
lines (infra.progress), and *lifeline*, which the child only watches. When the parent dies, however it dies,
the kernel closes the lifeline and the child kills its own process group. When the parent is cancelled, it
stops the child's whole tree before it goes on unwinding.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from infra.errors import Cancelled, ChildDied, from_event
from infra.process import GO_ON, LIFELINE_FD
from infra.progress import EVENTS_FD, Listener

GRACE_SECONDS = 10.0  # for a polite end: a checkpoint is written, a lock let go
_SAMPLE_SECONDS = 0.2
_LAST_LINES = 40


@dataclass(frozen=True)
class ChildResult:
    """How a child ended.

    Attributes:
        returncode: exit status; negative where a signal ended it.
        result: what the child gave to ``progress.result``, or None.
        error: the child's "error" event, or None.
        peak_rss_bytes: largest resident memory of its process tree.
        seconds: from its start to its end.
        last_lines: the end of what it printed.
    """

    returncode: int
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    peak_rss_bytes: int
    seconds: float
    last_lines: list[str] = field(default_factory=list)

    def raise_for_status(self) -> None:
        """Raise what the child died of; nothing where it ended well.

        Raises:
            ShardmillError: the child's own error, ``Cancelled``, or ``ChildDied`` with its last lines.
        """
        if self.returncode == 0:
            return
        if self.error is not None:
            raise from_event(self.error)
        if self.returncode in (130, -signal.SIGINT, -signal.SIGTERM):
            raise Cancelled("stopped on request", GO_ON)
        killed = self.returncode == -signal.SIGKILL
        how = (
            f"was killed by {signal.Signals(-self.returncode).name}"
            if self.returncode < 0
            else f"ended with status {self.returncode}"
        )
        tail = "\n".join(self.last_lines[-12:])
        raise ChildDied(
            f"a child process {how}" + (f"; it last said:\n{tail}" if tail else ""),
            GO_ON + (" (SIGKILL most often means that memory ran out)" if killed else ""),
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
    """Run ``argv`` to its end and relay what it reports.

    Args:
        argv: the command.
        on_event: called with each event, on a thread of its own.
        on_line: called with each line the child prints (standard output and error), likewise.
        env: variables on top of this process's own.
        cwd: the child's working folder.
        cancel: set it from another thread to stop the child.
        log_path: file that gets the child's lines too.

    Raises:
        Cancelled: ``cancel`` was set; the tree is gone.
        BaseException: whatever reaches this process meanwhile (KeyboardInterrupt, Prefect's
            TerminationSignal); the tree is gone before it goes on.
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
    started = time.monotonic()
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(os.close, lifeline_write)
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
        relay = _Relay(process, os.fdopen(events_read, "rb"), on_event, on_line, log_path)
        memory = _MemorySampler(process.pid)
        try:
            _wait(process, cancel, memory)
        except BaseException:
            kill_tree(process)
            raise
        finally:
            relay.finish()
    return ChildResult(
        process.returncode,
        relay.result,
        relay.error,
        memory.peak_bytes,
        time.monotonic() - started,
        relay.tail,
    )


def _wait(process: subprocess.Popen[bytes], cancel: threading.Event | None, memory: _MemorySampler) -> None:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_SAMPLE_SECONDS)
            return
        memory.sample()
        if cancel is not None and cancel.is_set():
            raise Cancelled("stopped on request", GO_ON)


def kill_tree(process: subprocess.Popen[bytes], grace_seconds: float | None = None) -> None:
    """End a child and all its descendants: politely, then by force. Returns when they are gone."""
    grace_seconds = GRACE_SECONDS if grace_seconds is None else grace_seconds
    tree = _descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=grace_seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for survivor in {*tree, *_descendants(process.pid)}:
        with contextlib.suppress(psutil.NoSuchProcess):
            survivor.kill()
    process.wait()
    psutil.wait_procs(tree, timeout=grace_seconds)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


class _MemorySampler:
    """Largest resident memory (bytes) of a process tree, sampled while it runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.peak_bytes = 0

    def sample(self) -> None:
        total = 0
        try:
            root = psutil.Process(self._pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    total += process.memory_info().rss
        except psutil.NoSuchProcess:
            return
        self.peak_bytes = max(self.peak_bytes, total)


class _Relay:
    """Two threads that read a child's events and lines until it closes them."""

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
        return list(self._lines)

    def finish(self) -> None:
        """Wait for what the child wrote last; not for ever, since a stray grandchild may hold the pipes."""
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
