"""Run the jobs of flows and of the commands that run flows, and decide whether one is tried again.

Importing Prefect and making a flow run takes seconds. A command therefore starts the first job of its flow at
once (``started_early``), and the first ``run_job`` of this process takes over that running job: the flow
never starts it a second time. What the job said until then goes to the listeners of this process at once, and
to the flow run when it takes over.

A job whose process was killed, such as for lack of memory, continues where it stopped when it is run again.
An error that the job reported would recur: a wrong setting, bad data, a full disk, a defect. Storage repeats
its own requests.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from shardmill.infra.errors import ChildDied
from shardmill.infra.processes.children import ChildResult, RunningChild, run_child, running_child
from shardmill.infra.processes.process import is_defect
from shardmill.infra.progress import Event, Listener, emit, log

OnLine = Callable[[str], None]

Result = TypeVar("Result")

_WAIT_SECONDS = 0.02
# Each pause is four times as long as the one before: another program that fills the memory may end by then.
PAUSES_SECONDS = (5.0, 20.0, 80.0)


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
        """Wait until the job ends or begins to work, or a time is over; tell whether it only listed."""
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


_early: EarlyJob | None = None  # started by a command, and not yet taken over


@contextlib.contextmanager
def started_early(command: Sequence[str]) -> Iterator[EarlyJob]:
    """Start the first job of a flow now, for the first ``run_job``. It is gone when the block ends.

    Raises:
        RuntimeError: the block ended without an error, and nothing took the job over.
    """
    global _early
    relay = _Relay()
    with running_child(command, relay.event, relay.line) as child:
        job = _early = EarlyJob(child, relay)
        try:
            yield job
            if _early is job:
                raise RuntimeError(
                    f"a flow ended without its first job, which a command had started: {command}"
                )
        finally:
            _early = None


def run_job(
    command: Sequence[str], on_event: Listener, on_line: OnLine, cancel: threading.Event | None = None
) -> ChildResult:
    """Run a job to its end: the one that a command started early if it is still waiting, or a new one.

    Its events go to the listeners of this process too.

    Args:
        command: argv of a process that emits the events of shardmill.infra.progress.
        on_event: called with each event, on a thread of its own.
        on_line: called with each line that the job prints, likewise.
        cancel: set it from another thread to stop the job.

    Raises:
        Cancelled: ``cancel`` was set. BaseException: see ``run_child``. The process tree is gone then.
    """
    global _early
    early, _early = _early, None
    if early is not None:
        return early.taken_over(on_event, on_line, cancel)

    def pass_on(event: Event) -> None:
        emit(event)
        on_event(event)

    return run_child(command, on_event=pass_on, on_line=on_line, cancel=cancel)


def may_help(error: BaseException) -> bool:
    """Tell whether the job that ended with this error may succeed when it is run again."""
    return isinstance(error, ChildDied) and not is_defect(error)


def tried_again(job: Callable[[], Result]) -> Result:
    """Call ``job``; call it again after a pause if the error may be temporary; raise the last error."""
    for pause in PAUSES_SECONDS:
        try:
            return job()
        except ChildDied as error:
            if not may_help(error):
                raise
            log(f"{error.message}; trying again in {pause:.0f} s", level="warning")
            time.sleep(pause)
    return job()
