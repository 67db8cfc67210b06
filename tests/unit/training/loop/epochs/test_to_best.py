"""Training to the best model, with a loop made up."""

from __future__ import annotations

import contextlib
import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardmill.training.config import RunSettings
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.epochs.to_best import train_to_best
from shardmill.training.run.stopping.interruption import StopFlag


class FailingLoop:
    """A loop whose first step does not fit into memory."""

    progress, run_step = Progress(), 0

    def run(self) -> None:
        raise MemoryError("too large")


def test_a_loop_that_failed_is_not_kept(tmp_path: Path) -> None:
    """The next attempt needs its memory."""
    made = []

    def begin(*_: Any) -> FailingLoop:
        loop = FailingLoop()
        made.append(weakref.ref(loop))
        return loop

    parts: Any = SimpleNamespace(state=[], model_state=[], restoring=contextlib.nullcontext)
    alone: Any = SimpleNamespace(rank=0, num_ranks=1, is_first=True, value_of_first=lambda value: value)
    order: Any = None
    stop = StopFlag()
    with pytest.raises(MemoryError):
        train_to_best(RunSettings(), tmp_path, parts, order, alone, stop, Trackers(None), begin)
    gc.collect()
    assert [loop() for loop in made] == [None]
