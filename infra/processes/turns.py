"""Let jobs that share a machine work one after another, those that use the same resource.

A job takes its turn when its heavy work begins, by a lock on the file that the variable SHARDMILL_TURNS
names; `shardmill` and the deployments set it, for each machine one file. The GPUs have a file of their own
beside it: preparing images does not wait for a training on GPUs. A short job waits a moment, then works
beside a long one. The kernel releases the lock when the process ends, however it ends. Without the variable,
nothing waits.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from shardmill.infra.progress import log, waiting

TURNS_VARIABLE = "SHARDMILL_TURNS"

Resource = Literal["cpu", "gpu"]

_POLL_SECONDS = 0.5
_SHORT_WAIT_SECONDS = 20.0


class Turn:
    """The turn of a job. It is taken when needed, and given back at the end of the block."""

    def __init__(self, work: str, on: Resource = "cpu") -> None:
        """Remember ``work``, so that waiting processes can show it, and what it computes on."""
        self._work, self._on = work, on
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def take(self, *, is_short: bool = False, patience_seconds: float = _SHORT_WAIT_SECONDS) -> None:
        """Wait until no other job of this machine uses the resource. A turn is taken once.

        Args:
            is_short: the job takes seconds.
            patience_seconds: so long does a short job wait for a long one; then it works beside it, and waits
                for other short ones only.
        """
        path = os.environ.get(TURNS_VARIABLE)
        if not path or self._file is not None:
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Not inherited by the processes of the job, so none of them keeps it after the job.
        self._file = _opened(path if self._on == "cpu" else f"{path}-{self._on}")
        end = time.monotonic() + patience_seconds if is_short else None
        other = _wait(self._file, end)
        if other is not None:
            log(f"working beside {other}, since this is a short job")
            self._file.close()
            self._file = _opened(f"{path}-short")
            _wait(self._file, None)
        self._file.truncate(0)
        self._file.write(f"{self._work} (process {os.getpid()})")
        self._file.flush()


def _opened(path: str) -> IO[str]:
    return Path(path).open("a+", encoding="utf-8")


def _wait(file: IO[str], end: float | None) -> str | None:
    """Wait for the lock of a file, at most until ``end``; return the job that holds it then, None if free."""
    holder, other = None, None
    while not _locked(file):
        file.seek(0)
        other = file.read().strip() or "another job of this machine"
        if end is not None and time.monotonic() > end:
            break
        if other != holder:
            log(f"waiting until {other} has ended; a command with --now does not wait")
            waiting(other)
            holder = other
        time.sleep(_POLL_SECONDS)
    else:
        other = None
    if holder is not None:
        waiting("")
    return other


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
