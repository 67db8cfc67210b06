"""The sign of life of a rank: a few numbers in a small file that the rank maps into its memory.

A rank beats twice a step: when it has its batch, and when the step is done. A beat costs about a microsecond
and never blocks, so it can be given each time. The parent reads the file whenever it wants to.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from shardmill.infra.progress import Event

PATH_VARIABLE = "SHARDMILL_HEARTBEAT"

_FORM = struct.Struct("<qqqd")
_FIRST_BEATS = 4  # the first two steps of a stage: each may compile
_BEATS_OF_NEXT_STEP = 2  # the first one after the end of a stage belongs to its last step


class Work(IntEnum):
    """The work of a rank, by the silence that it may need."""

    START = 0
    """The process starts, or a stage begins: it may compile for minutes."""
    STEPS = 1
    """Steps of training or evaluation: each takes about as long as the ones before."""
    LONG = 2
    """A checkpoint, an export, a report, or the end of a stage: it may take minutes, and wait for a disk, a
    server, or the threads of TensorFlow's iterators."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The latest beat of a rank.

    Attributes:
        number: beats since the start of the process; 0: none yet.
        work: what the rank does since then.
        step: steps of the run that are done.
        at: when, on the system's monotonic clock (seconds).
    """

    number: int = 0
    work: Work = Work.START
    step: int = 0
    at: float = 0.0


class Heart:
    """Beats for one rank."""

    def __init__(self, path: Path) -> None:
        """Map the file ``path``, which ``prepare`` has made."""
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)
        self._number = self._in_stage = self._step = 0
        self._is_over = False  # the latest stage
        self._special: Work | None = None

    def beat(self, step: int | None = None) -> None:
        """Note that the rank is alive; ``step`` of the run is done."""
        self._number += 1
        self._in_stage += 1
        if step is not None:
            self._step = step
        self.note_life()

    def note_step(self, step: int) -> None:
        """Note that ``step`` of the run is done, before others hear of it. This is no beat of its own."""
        self._step = step
        self.note_life()

    def note_life(self) -> None:
        """Note that the rank goes on with what it does, which has no steps. This is no beat of its own."""
        work = self._special
        if work is None and self._is_over and self._in_stage < _BEATS_OF_NEXT_STEP:
            work = Work.LONG
        if work is None:
            work = Work.STEPS if self._in_stage >= _FIRST_BEATS else Work.START
        _FORM.pack_into(self._memory, 0, self._number, work, self._step, time.monotonic())

    def begin_stage(self) -> None:
        """Note that work of another kind begins, whose first beats may take long."""
        self._in_stage, self._is_over = 0, False
        self.note_life()

    def end_stage(self) -> None:
        """Note that all work of a stage is done. Steps of another stage may follow without a word."""
        self._in_stage, self._is_over = 0, True
        self.note_life()

    def hear(self, event: Event) -> None:
        """Note what an event of this process tells: work of a stage is done; a stage begins or ends."""
        if event["event"] == "stage":
            self.begin_stage()
        elif event["event"] == "progress":
            is_over = event["total"] is not None and event["done"] >= event["total"]
            (self.end_stage if is_over else self.note_life)()

    @contextmanager
    def during(self, work: Work) -> Iterator[None]:
        """Note that the block does work of this kind, and that the rank then goes on as before."""
        before, self._special = self._special, work
        self.note_life()
        try:
            yield
        finally:
            self._special = before
            self.note_life()


def prepare(path: Path) -> None:
    """Make the file of a rank that is about to start."""
    path.write_bytes(bytes(_FORM.size))


def read(path: Path) -> Beat:
    """Read the latest beat of a rank."""
    data = path.read_bytes()
    if len(data) != _FORM.size:
        return Beat()
    number, work, step, at = _FORM.unpack(data)
    return Beat(number, Work(work), step, at)


def heart_of_this_process() -> Heart | None:
    """Return the heart of this rank; None: no parent watches it."""
    path = os.environ.get(PATH_VARIABLE)
    return Heart(Path(path)) if path else None
