"""Training steps on batches in memory, in this process or, for several devices, in one of their own.

``python -m tests.samples.training.steps FOLDER NUM_DEVICES OUT OVERRIDE...`` trains on the dataset "set" in
FOLDER and writes the weights to OUT (.npz).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig

BASE = [
    "model.name=tests.samples.models.linear_model", "data.image_size=8", "data.global_batch_size=8",
    "optimizer.name=sgd", "optimizer.learning_rate=0.5", "run.epochs=1",
]  # fmt: skip
STEPS = 6
Weights = dict[str, npt.NDArray[Any]]


def config(*overrides: str) -> TrainConfig:
    """A small model, a small batch, SGD."""
    return load_settings(TrainConfig, section="train", overrides=[*BASE, *overrides])


def batches(steps: int = STEPS) -> list[dict[str, npt.NDArray[Any]]]:
    """Batches of 8; the last row of each is padding, the others weigh differently."""
    chance = np.random.default_rng(3)
    made = []
    for _ in range(steps):
        weights = chance.uniform(0.5, 2.0, 8).astype(np.float32)
        weights[-1] = 0
        images = chance.integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
        labels = (images[:, 0, 0, 0] > 127).astype(np.int32)
        made.append({"images": images, "labels": labels, "weights": weights / weights.sum()})
    return made


def skip_unless_computable(kind: Any) -> None:
    """Skip the test if the environment forbids this processor to compute in a ``run.mixed_precision``."""
    from shardmill.training.tensorflow.optimization.optimizers import precision

    try:
        with precision(kind):
            pass
    except ConfigError as refused:
        pytest.skip(str(refused))


class Training:
    """A model that is trained step by step."""

    def __init__(self, version: DatasetVersion, *overrides: str) -> None:
        from shardmill.training.tensorflow import starting
        from shardmill.training.tensorflow.parts import build_parts
        from shardmill.training.tensorflow.ranks.strategy import make_strategy
        from shardmill.training.tensorflow.step import TrainStep

        settings = config(*overrides)
        starting.start(devices=settings.run.devices, seed=settings.data.seed)
        self.strategy = make_strategy(settings.run.devices)
        self.parts = build_parts(settings, self.strategy, version, STEPS)
        self._rows = 8 // self.strategy.num_replicas_in_sync
        self._step = TrainStep(settings, self.parts, self._rows)

    def steps(self, taken: Sequence[dict[str, npt.NDArray[Any]]]) -> Training:
        """Take a step on each batch."""
        import tensorflow as tf

        for number, batch in enumerate(taken):

            def part(context: Any, batch: dict[str, npt.NDArray[Any]] = batch) -> Any:
                start = context.replica_id_in_sync_group * self._rows
                return {
                    name: tf.constant(column[start : start + self._rows]) for name, column in batch.items()
                }

            self._step(self.strategy.experimental_distribute_values_from_function(part), number, 7)
        return self

    def weights(self) -> Weights:
        """All variables of a checkpoint by their numbers."""
        return {
            f"{number:03d}": np.asarray(variable.numpy()) for number, variable in enumerate(self.parts.state)
        }


def trained_elsewhere(folder: Path, num_devices: int, *overrides: str) -> Weights:
    """The weights after all steps, trained by a process of its own with logical devices."""
    out = folder / "weights.npz"
    argv = [sys.executable, "-m", "tests.samples.training.steps", str(folder), str(num_devices), str(out)]
    subprocess.run([*argv, *overrides], check=True, cwd=Path(__file__).parents[3])
    with np.load(out) as archive:
        return {name: archive[name] for name in archive.files}


if __name__ == "__main__":
    root, devices, to = sys.argv[1:4]
    training = Training(Catalog(root).open("set"), f"run.devices=cpu:{devices}", *sys.argv[4:])
    np.savez(to, allow_pickle=False, **training.steps(batches()).weights())
