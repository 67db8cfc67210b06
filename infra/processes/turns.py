"""Let jobs that share a machine work one after another.

A job takes its turn when its heavy work begins, by a lock on the file that the variable SHARDMILL_TURNS
names; `shardmill` and the deployments set it, for each machine one file. The kernel releases the lock when
the process ends, however it ends. Without the variable, nothing waits.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from infra.progress import log, waiting

TURNS_VARIABLE = "SHARDMILL_TURNS"

_POLL_SECONDS = 0.5


class Turn:
    """The turn of a job. It is taken when needed, and given back at the end of the block."""

    def __init__(self, work: str) -> None:
        """Remember ``work``, so that waiting processes can show it."""
        self._work = work
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def take(self) -> None:
        """Wait until no other job of this machine works. Nothing happens where the turn is taken already."""
        path = os.environ.get(TURNS_VARIABLE)
        if not path or self._file is not None:
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Not inherited by the processes of the job, so none of them keeps it after the job.
        self._file = Path(path).open("a+", encoding="utf-8")  # noqa: SIM115  closed by __exit__
        said = None
        while not _locked(self._file):
            other = _content(self._file)
            if other != said:
                log(f"waiting until {other} has ended; a command with --now does not wait")
                waiting(other)
                said = other
            time.sleep(_POLL_SECONDS)
        if said is not None:
            waiting("")
        self._file.truncate(0)
        self._file.write(f"{self._work} (process {os.getpid()})")
        self._file.flush()


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "another job of this machine"
