"""Training steps with TensorFlow to try batch sizes with."""

from __future__ import annotations

from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.dataset import Dataset
from shardmill.training.run.files.folds import divide_train_split
from shardmill.training.run.memory.sizes import sized
from shardmill.training.tasks.annotations import objects_of
from shardmill.training.tensorflow.data.training_input import InputSettings, open_training_input
from shardmill.training.tensorflow.memory.exhaustion import out_of_memory
from shardmill.training.tensorflow.parts import build_parts
from shardmill.training.tensorflow.ranks.device_memory import peak_device_bytes
from shardmill.training.tensorflow.ranks.strategy import distribute, make_strategy
from shardmill.training.tensorflow.step import TrainStep

_STEPS = 2


class TensorFlowSteps:
    """Implements ``TriedSteps``.

    Attributes:
        num_replicas: the devices that share a step.
        num_records: the examples of the train split.
    """

    def __init__(self, config: TrainConfig, version: DatasetVersion) -> None:
        """Build the model. TensorFlow has been started.

        Raises:
            ConfigError: the model cannot be built.
        """
        self._version = version
        self._train = Dataset(version, config.reading).reader("train")
        strategy = make_strategy(config.run.devices)
        self.num_replicas = int(strategy.num_replicas_in_sync)
        self._parts = build_parts(sized(config, self.num_replicas), strategy, version, 1)
        self.num_records = len(self._train.table)

    def take(self, config: TrainConfig) -> None:
        """Take two steps; see ``TriedSteps``."""
        parts = self._parts
        order = divide_train_split(config.data, self._train, self._version.manifest.classes).order
        objects = objects_of(parts.task, self._train)
        settings = InputSettings(config.data, config.reading, config.augment, objects)
        pipeline = open_training_input(settings, self._train, order, image_size_of(config)).pipeline
        step = TrainStep(config, parts, config.data.batch_size // self.num_replicas)
        batches: Any = iter(distribute(parts.strategy, pipeline, 0, _STEPS))
        with out_of_memory():
            for _ in range(_STEPS):
                step(next(batches), config.data.batch_size)
            parts.totals.take()  # waits for the device

    def peak_device_bytes(self) -> dict[str, int]:
        """Return the most memory of each GPU so far."""
        return peak_device_bytes()
