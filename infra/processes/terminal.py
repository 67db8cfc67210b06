"""Standard output and error as a user's shell may leave them.

A shell can close them (``>&-``), and what reads them can go away (``| head``) or be full (``/dev/full``).
A reader of standard output that has seen enough ends the command quietly; otherwise a result that cannot be
written is an error like any other. Progress that cannot be shown is simply not shown.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from shardmill.infra.errors import EnvironmentFault

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
