"""The sign of life of a rank: a few numbers in a small file that the rank maps into its memory.

A rank beats twice a step: when it has its batch, and when the step is done. A beat costs about a microsecond
and never blocks, so it can be given each time. The parent reads the file whenever it wants to.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

PATH_VARIABLE = "SHARDMILL_HEARTBEAT"

_FORM = struct.Struct("<qqqd")


@dataclass(frozen=True, slots=True)
class Beat:
    """The latest beat of a rank.

    Attributes:
        number: beats since the start of the process; 0: none yet.
        in_stage: beats since the latest stage (training, validation, ...) began.
        step: steps of the run that are done.
        at: when, on the system's monotonic clock (seconds).
    """

    number: int = 0
    in_stage: int = 0
    step: int = 0
    at: float = 0.0


class Heart:
    """Beats for one rank."""

    def __init__(self, path: Path) -> None:
        """Map the file ``path``, which ``prepare`` has made."""
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)
        self._number = self._in_stage = self._step = 0

    def beat(self, step: int | None = None) -> None:
        """Note that the rank is alive; ``step`` of the run is done."""
        self._number += 1
        self._in_stage += 1
        if step is not None:
            self._step = step
        self._write()

    def note_step(self, step: int) -> None:
        """Note that ``step`` of the run is done, before others hear of it. This is no beat of its own."""
        self._step = step
        self._write()

    def begin_stage(self) -> None:
        """Note that work of another kind begins, whose first beats may take long."""
        self._in_stage = 0
        self._write()

    def _write(self) -> None:
        _FORM.pack_into(self._memory, 0, self._number, self._in_stage, self._step, time.monotonic())


def prepare(path: Path) -> None:
    """Make the file of a rank that is about to start."""
    path.write_bytes(bytes(_FORM.size))


def read(path: Path) -> Beat:
    """Read the latest beat of a rank."""
    data = path.read_bytes()
    return Beat(*_FORM.unpack(data)) if len(data) == _FORM.size else Beat()


def heart_of_this_process() -> Heart | None:
    """Return the heart of this rank; None: no parent watches it."""
    path = os.environ.get(PATH_VARIABLE)
    return Heart(Path(path)) if path else None
