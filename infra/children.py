"""Child processes that report, can be cancelled, and never outlive their parent.

The parent starts a child in a session of its own with two pipes: *events*, on which the child writes JSON
lines (infra.progress), and *lifeline*, which the child only watches. When the parent dies, however it dies,
the kernel closes the lifeline and the child kills its own process group. When the parent is cancelled, it
stops the child's whole tree before it goes on unwinding.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.child_output import ChildOutput
from infra.errors import Cancelled, ChildDied, from_event
from infra.process import GO_ON, LIFELINE_FD
from infra.process_trees import MemorySampler, kill_tree
from infra.progress import EVENTS_FD, Listener

_SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class ChildResult:
    """How a child ended.

    Attributes:
        returncode: exit status; negative where a signal ended it.
        result: what the child gave to ``progress.result``, or None.
        error: the child's "error" event, or None.
        peak_memory_bytes: largest memory of its process tree; what is shared counts once.
        seconds: from its start to its end.
        last_lines: the end of what it printed.
        was_stopped: whether ``watch`` ended it.
    """

    returncode: int
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    peak_memory_bytes: int
    seconds: float
    last_lines: list[str] = field(default_factory=list)
    was_stopped: bool = False

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
    pass_fds: Sequence[int] = (),
    watch: Callable[[int], bool] | None = None,
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
        pass_fds: more descriptors that the child inherits, under their numbers.
        watch: called a few times a second with the resident memory of the child's tree (bytes); where it
            returns True, the tree is ended at once and by force.

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
                pass_fds=(events_write, lifeline_read, *pass_fds),
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
        output = ChildOutput(process, os.fdopen(events_read, "rb"), on_event, on_line, log_path)
        memory = MemorySampler(process.pid)
        try:
            was_stopped = _wait(process, cancel, memory, watch)
        except BaseException:
            kill_tree(process)
            raise
        finally:
            output.finish()
    return ChildResult(
        process.returncode,
        output.result,
        output.error,
        memory.peak_bytes,
        time.monotonic() - started,
        output.tail,
        was_stopped,
    )


def _wait(
    process: subprocess.Popen[bytes],
    cancel: threading.Event | None,
    memory: MemorySampler,
    watch: Callable[[int], bool] | None,
) -> bool:
    """Wait for the end of a child; returns whether ``watch`` brought it about."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_SAMPLE_SECONDS)
            return False
        resident_bytes = memory.sample()
        if watch is not None and watch(resident_bytes):
            kill_tree(process, grace_seconds=0.0)
            return True
        if cancel is not None and cancel.is_set():
            raise Cancelled("stopped on request", GO_ON)
