"""Child processes that report, can be cancelled, and never outlive their parent.

The parent starts a child in a session of its own with two pipes: *events*, on which the child writes JSON
lines (infra.progress), and *lifeline*, which the child only watches. When the parent dies, however it dies,
the kernel closes the lifeline and the child kills its own process group. When the parent is cancelled, it
stops the child's whole tree before it goes on unwinding.

``run_child`` is all that most need. With ``start_child`` the parent can do what it has to do while the child
loads its libraries, and then tell it what to do on its standard input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from infra.child_output import ChildOutput
from infra.errors import Cancelled, ChildDied, from_event
from infra.process import GO_ON, LIFELINE_FD
from infra.process_trees import MemorySampler, kill_tree, wait_for_end
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

    def reported(self) -> dict[str, Any]:
        """What the child gave to ``progress.result``.

        Raises:
            ShardmillError: as ``raise_for_status``. ChildDied: it ended well, and gave nothing.
        """
        self.raise_for_status()
        if self.result is None:
            raise ChildDied("the job ended well, but without a result", "this is a defect of Shardmill")
        return self.result


class StartedChild:
    """A child that runs, and is yet to be waited for; see ``start_child``."""

    def __init__(self, process: subprocess.Popen[bytes], events: IO[bytes], started: float) -> None:
        self._process = process
        self._events = events
        self._started = started
        self._is_read = False

    def give(self, text: str) -> None:
        """All of the child's standard input; one that is gone by now is found so when it is waited for."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stream:
            stream.write(text.encode())

    def wait(
        self,
        *,
        on_event: Listener | None = None,
        on_line: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
        log_path: str | Path | None = None,
        watch: Callable[[int], bool] | None = None,
    ) -> ChildResult:
        """Relay what the child reports until it ends; arguments and errors are those of ``run_child``."""
        process = self._process
        self._is_read = True
        output = ChildOutput(process, self._events, on_event, on_line, log_path)
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
            time.monotonic() - self._started,
            output.tail,
            was_stopped,
        )

    def end(self) -> None:
        """End the tree by force where it is still running, and let go of what was not waited for."""
        if self._process.poll() is None:
            kill_tree(self._process, grace_seconds=0.0)
        # Whoever reads a stream closes it; a second hand would wait for the first.
        for stream in (self._process.stdin, *(() if self._is_read else (self._process.stdout, self._events))):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def start_child(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    pass_fds: Sequence[int] = (),
    has_input: bool = False,
) -> Iterator[StartedChild]:
    """Start ``argv``; where it is still running when the block ends, its tree is ended by force.

    Args:
        argv: the command.
        env: variables on top of this process's own.
        cwd: the child's working folder.
        pass_fds: more descriptors that the child inherits, under their numbers.
        has_input: it reads its standard input, and is given it (``StartedChild.give``).
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
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
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
        child = StartedChild(process, os.fdopen(events_read, "rb"), started)
        cleanup.callback(child.end)
        yield child


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
    with start_child(argv, env=env, cwd=cwd, pass_fds=pass_fds) as child:
        return child.wait(on_event=on_event, on_line=on_line, cancel=cancel, log_path=log_path, watch=watch)


def _wait(
    process: subprocess.Popen[bytes],
    cancel: threading.Event | None,
    memory: MemorySampler,
    watch: Callable[[int], bool] | None,
) -> bool:
    """Wait for the end of a child; returns whether ``watch`` brought it about."""
    while True:
        if wait_for_end(process, _SAMPLE_SECONDS):
            return False
        resident_bytes = memory.sample()
        if watch is not None and watch(resident_bytes):
            kill_tree(process, grace_seconds=0.0)
            return True
        if cancel is not None and cancel.is_set():
            raise Cancelled("stopped on request", GO_ON)
