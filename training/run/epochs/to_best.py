"""Train to the best model of a run, from its latest checkpoint, with any framework. No TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from shardmill.infra.errors import Diverged
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import RunSettings
from shardmill.training.order import Order
from shardmill.training.ranks.peers import Peers
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.checkpoints.checkpoints import AFTER_DIVERGENCE, Checkpoints, Progress
from shardmill.training.run.checkpoints.shared import SharedCheckpoints
from shardmill.training.run.epochs.data_and_outputs import RunOutputs, open_outputs
from shardmill.training.run.epochs.run_progress import resumed
from shardmill.training.run.stopping.interruption import StopFlag


class SavedParts(Protocol):
    """The parts of a training that a checkpoint saves, with any framework."""

    @property
    def state(self) -> list[Any]:
        """All arrays of a checkpoint."""

    @property
    def model_state(self) -> list[Any]:
        """Those of the model, which the best checkpoint has."""

    def restoring(self) -> AbstractContextManager[Any]:
        """Let arrays be assigned while the block runs."""


class RunningLoop(Protocol):
    """A training loop."""

    @property
    def progress(self) -> Progress:
        """The position of the run, and its counts."""

    @property
    def run_step(self) -> int:
        """The number of steps done, over all epochs."""

    def run(self) -> None:
        """Train to the end."""


Loop = TypeVar("Loop", bound=RunningLoop)


def train_to_best(
    settings: RunSettings,
    run_dir: Path,
    parts: SavedParts,
    order: Order,
    ranks: Peers,
    stop: StopFlag,
    trackers: Trackers,
    begin: Callable[[RunOutputs, Progress], Loop],
) -> Loop:
    """Run a loop from the latest checkpoint in ``run_dir``, then restore the best model.

    Args:
        settings: the settings of the run.
        run_dir: its folder; of ranks other than the first one that is thrown away.
        parts: the model with all that trains it.
        order: the order of the train split.
        ranks: the ranks that train together.
        stop: asks the loop to stop.
        trackers: other systems that are told about the run.
        begin: makes the loop that writes to these outputs and continues at this position.

    Returns:
        The loop at its end.

    Raises:
        Diverged: no epoch has a model that can be the best. What the loop raises.
    """
    own = (
        Checkpoints(Storage.at(run_dir / "checkpoints"), settings.keep_checkpoints)
        if ranks.rank == 0
        else None
    )
    checkpoints = SharedCheckpoints(own, ranks)
    with parts.restoring():
        found = checkpoints.restore_latest(parts.state)
    progress = resumed(found, settings, order)
    if not ranks.is_first:
        progress = replace(progress, trace_bytes=0)  # these ranks begin a new file
    with open_outputs(
        run_dir, checkpoints, progress, trackers, trace_records=settings.trace_records
    ) as outputs:
        loop = begin(outputs, progress)
        stop.steps_done = lambda: loop.run_step
        try:
            loop.run()
        finally:
            stop.steps_done = None  # else a loop that failed stays in memory while the next one is built
    best = loop.progress.best
    if best is None:  # the last epoch is always compared
        raise Diverged(
            f"no epoch of the run has a finite loss and {settings.best_metric} on the validation split",
            AFTER_DIVERGENCE,
        )
    with parts.restoring():
        checkpoints.restore_best(int(best["epoch"]), parts.model_state)
    return loop
