"""Whole runs in this process, up to the best model: without the export, which takes most of their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shardmill import Dataset
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import Cancelled
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.frameworks import start
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.epochs.epoch_loop import TrainingData, resumed_loop
from shardmill.training.run.files.folds import divide_train_split
from shardmill.training.run.sharing.division import Division
from shardmill.training.run.stopping import StopFlag
from shardmill.training.tasks.settings import settings_for

SMALL = [
    "model.name=tests.samples.models.linear_model", "data.image_size=8", "data.global_batch_size=8",
    "run.log_every_steps=2",
]  # fmt: skip


class StopAfter(StopFlag):
    """Asks a run to stop after its first so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps

    def check(self) -> None:
        """Raise Cancelled when the steps are done."""
        if self.steps_done is not None and self.steps_done() >= self._steps:
            raise Cancelled("stopped by the test")


def trained(
    version: DatasetVersion, run_dir: Path, *overrides: str, stop: StopFlag | None = None
) -> tuple[Any, Any]:
    """The loop with the best model of a run restored, and its evaluation on the validation split."""
    config = load_settings(TrainConfig, section="train", overrides=[*SMALL, *overrides])
    config = settings_for(config, version)
    framework = start(config.run.framework, config)
    dataset = Dataset(version, config.reading)
    train, validation = dataset.reader("train"), dataset.reader("validation")
    order = divide_train_split(config.data, train, dataset.classes).order
    model = framework.build(config, version, order.steps_per_epoch)
    examples = framework.open_input(config, train, order, Division((config.data.batch_size,)))
    data, flag = TrainingData(examples, train, order, validation), stop or StopFlag()
    with resumed_loop(config, framework, model, data, run_dir, flag, Trackers(None)) as loop:
        loop.run()
    return loop, model.evaluator.evaluate(validation, lambda _: None)


def last_state(run_dir: Path) -> dict[str, Any]:
    """Every variable of the last checkpoint of a run, by its name."""
    import numpy as np

    with np.load(max((run_dir / "checkpoints").glob("step-*.npz"))) as archive:
        return {name: archive[name] for name in archive.files if name != "progress"}
