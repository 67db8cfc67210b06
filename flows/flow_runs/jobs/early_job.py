"""Start the first job of a flow before the flow itself.

Importing Prefect and making a flow run takes seconds. A command therefore starts the first job at once; the
flow run takes over the running job as soon as it exists (``run_job``). What the job said until then goes to
the listeners of this process at once, and to the flow run when it takes over.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from shardmill.infra.processes.children import ChildResult, RunningChild, run_child, running_child
from shardmill.infra.progress import Event, Listener, emit

OnLine = Callable[[str], None]

_WAIT_SECONDS = 0.02


class _Relay:
    """Passes on the events and lines of a job; keeps them until there is somebody to pass them to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._lines: list[str] = []
        self._on_event: Listener | None = None
        self._on_line: OnLine | None = None

    def event(self, event: Event) -> None:
        """Pass on an event of the job."""
        emit(event)
        with self._lock:
            if self._on_event is None:
                self._events.append(event)
            else:
                self._on_event(event)

    def line(self, line: str) -> None:
        """Pass on a line that the job printed."""
        with self._lock:
            if self._on_line is None:
                self._lines.append(line)
            else:
                self._on_line(line)

    def pass_to(self, on_event: Listener, on_line: OnLine) -> None:
        """Pass all earlier and all further events and lines to these listeners."""
        with self._lock:
            self._on_event, self._on_line = on_event, on_line
            for event in self._events:
                on_event(event)
            for line in self._lines:
                on_line(line)

    def says_that_it_works(self) -> bool:
        """Tell whether the job has more to do than to list its source."""
        with self._lock:
            return any(event.get("stage", "list") != "list" for event in self._events)


class EarlyJob:
    """A job that runs already, until a flow run takes it over."""

    def __init__(self, child: RunningChild, relay: _Relay) -> None:
        self._child, self._relay = child, relay

    def ends_without_work(self, seconds: float) -> bool:
        """Wait for so long at most, until the job ends or begins to work; tell whether it only listed."""
        for _ in range(round(seconds / _WAIT_SECONDS)):
            if self._child.has_ended(_WAIT_SECONDS):
                self._child.wait()  # until all its output is read
                return not self._relay.says_that_it_works()
            if self._relay.says_that_it_works():
                return False
        return False

    def taken_over(self, on_event: Listener, on_line: OnLine, cancel: threading.Event | None) -> ChildResult:
        """Run it to its end for listeners; see ``run_job``."""
        self._relay.pass_to(on_event, on_line)
        return self._child.wait(cancel)


_waiting: dict[tuple[str, ...], EarlyJob] = {}


@contextlib.contextmanager
def started_early(command: Sequence[str]) -> Iterator[EarlyJob]:
    """Start a job now; ``run_job`` of the same command takes it over. It is gone when the block ends."""
    relay = _Relay()
    with running_child(command, relay.event, relay.line) as child:
        job = _waiting[tuple(command)] = EarlyJob(child, relay)
        try:
            yield job
        finally:
            _waiting.pop(tuple(command), None)


def run_job(
    command: Sequence[str], on_event: Listener, on_line: OnLine, cancel: threading.Event | None = None
) -> ChildResult:
    """Run a job to its end, or take over the job of the same command that was started early.

    Its events go to the listeners of this process too.

    Args:
        command: argv of a process that emits the events of shardmill.infra.progress.
        on_event: called with each event, on a thread of its own.
        on_line: called with each line that the job prints, likewise.
        cancel: set it from another thread to stop the job.

    Raises:
        Cancelled: ``cancel`` was set. BaseException: see ``run_child``. The process tree is gone then.
    """
    early = _waiting.pop(tuple(command), None)
    if early is not None:
        return early.taken_over(on_event, on_line, cancel)

    def pass_on(event: Event) -> None:
        emit(event)
        on_event(event)

    return run_child(command, on_event=pass_on, on_line=on_line, cancel=cancel)
