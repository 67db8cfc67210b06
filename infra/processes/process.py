"""The child's side of ``shardmill.infra.processes.children``: a process that its parent watches.

It dies with its parent, sends its events to the parent, raises ``Cancelled`` for signals to stop, and turns
its errors into messages, events and exit codes.

A shell can close standard output and error (``>&-``), and what reads them can go away (``| head``) or be full
(``/dev/full``). A reader of standard output that has seen enough ends the command quietly; otherwise a result
that cannot be written is an error like any other. Progress that cannot be shown is simply not shown.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, TextIO, TypeGuard, cast

from shardmill.infra.errors import GO_ON, Cancelled, ChildDied, EnvironmentFault, ShardmillError
from shardmill.infra.progress import adopt_parent, failure

_NAMES = {number.value: number.name for number in signal.Signals}


def describe_status(status: int) -> str:
    """Return the signal that ended a process, or its status: "SIGSEGV", "signal 40" or "status 1".

    Args:
        status: the exit status; negative: the signal. Most real-time signals have no name in Python.
    """
    return _NAMES.get(-status, f"signal {-status}") if status < 0 else f"status {status}"


LIFELINE_FD = "SHARDMILL_LIFELINE_FD"
_PR_SET_PDEATHSIG = 1  # prctl(2)
REPORT_DEFECT = "this is a defect of Shardmill; please report it with the log"
DEFECT = 1  # exit status of a Python process that an unexpected exception ended


def is_defect(error: BaseException | None) -> TypeGuard[ChildDied]:
    """Tell whether a child process ended by a defect of the code, which would recur."""
    return isinstance(error, ChildDied) and error.remedy == REPORT_DEFECT


def follow_parent() -> None:
    """Die with the parent: kill this process group when the lifeline closes. Call it first in a child's main.

    Also takes over the events pipe. Does nothing in a process that ``run_child`` did not start.
    """
    adopt_parent()
    descriptor = os.environ.pop(LIFELINE_FD, None)
    if descriptor is None:
        return
    lifeline = int(descriptor)
    os.set_inheritable(lifeline, False)

    def watch() -> None:
        while True:
            try:
                if not os.read(lifeline, 1):
                    break
            except InterruptedError:
                continue
            except OSError:
                break
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def die_at_once_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, even where a library holds the GIL for ever.

    In addition to the lifeline, whose thread needs the GIL; for processes whose children have lifelines of
    their own, since it kills this process alone. Only Linux can do that; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def die_with_process(pid: int) -> None:
    """Kill this process when another process ends, at once if it has ended.

    For children that a library starts: ``die_at_once_with_parent`` would end them with the thread that
    started them. Only Linux (5.3 or later) can do this; elsewhere nothing happens.

    Args:
        pid: the other process.
    """
    if not hasattr(os, "pidfd_open"):
        return
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGKILL)
    except OSError:
        return

    def watch() -> None:
        select.select([process], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="follow-process", daemon=True).start()


def _install_signal_handlers() -> None:
    """Make SIGTERM and SIGINT raise ``Cancelled`` in the main thread, so that ``finally`` blocks run."""

    def cancel(_signum: int, _frame: FrameType | None) -> None:
        # A second signal while the first unwinds must not interrupt the clean-up.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise Cancelled("stopped on request", GO_ON)

    signal.signal(signal.SIGTERM, cancel)
    signal.signal(signal.SIGINT, cancel)


@contextlib.contextmanager
def ignoring_signals() -> Iterator[None]:
    """Ignore requests to end within the block, which brings something to its end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_main(main: Callable[[], int]) -> int:
    """Run a command's body and turn its errors into messages, events and exit codes.

    Defects (anything but a ``ShardmillError``) keep their traceback and end with status 1. Where nobody reads
    standard output any more (``| head``), the command ends quietly, with status 141.
    """
    follow_parent()
    _install_signal_handlers()
    guard_standard_streams()
    try:
        with output_flushed():
            return main()
    except ReaderGone:
        return READER_GONE
    except ShardmillError as error:
        failure(error)
        print_error(error)
        return error.exit_code


def exit_at_once(status: int) -> NoReturn:
    """End this process without unloading its libraries or waiting for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def print_error(error: ShardmillError) -> None:
    """Print an error and its remedy for a person, on standard error."""
    print(f"error: {error.message}", file=sys.stderr)
    if error.remedy:
        print(f"remedy: {error.remedy}", file=sys.stderr)


def num_cpus() -> int:
    """The processor cores that this process may use: a container may be given fewer than the machine has."""
    # Not every system can say so.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_peak_rss_bytes() -> int:
    """Largest resident memory that this process has had so far (bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


READER_GONE = 128 + signal.SIGPIPE  # exit status that a shell gives a command ended by SIGPIPE


class ReaderGone(SystemExit):
    """The reader of standard output is gone. Not an error: only the entry point of a command catches it."""

    def __init__(self) -> None:
        super().__init__(READER_GONE)


def guard_standard_streams() -> None:
    """Make this process's standard streams safe to write to. Called once, first thing in a command's main.

    A write to standard output that fails raises ``ReaderGone`` or ``EnvironmentFault``; to standard error,
    nothing.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    sys.stdout = cast(TextIO, _Guarded(sys.stdout or open(1, "w", closefd=False), 1))  # noqa: SIM115
    sys.stderr = cast(TextIO, _Guarded(sys.stderr or open(2, "w", closefd=False), 2))  # noqa: SIM115


@contextlib.contextmanager
def output_flushed() -> Iterator[None]:
    """Flush standard output when the body of a command ends: a failure later has no one to handle it."""
    try:
        yield
    except SystemExit:  # after --help, for one
        sys.stdout.flush()
        raise
    sys.stdout.flush()


class _Guarded:
    """A text stream that reports a failure only once."""

    def __init__(self, stream: TextIO, descriptor: int) -> None:
        self._stream = stream
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._failed(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        # What is still buffered goes nowhere, without a second error when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._descriptor)
        os.close(nowhere)
        if self._descriptor == 1 and error.errno == errno.EPIPE:
            raise ReaderGone from error
        if self._descriptor == 1:
            raise EnvironmentFault(
                f"standard output cannot be written to: {error.strerror}",
                "the work itself is done where it had come to its result; look with: shardmill datasets",
            ) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
