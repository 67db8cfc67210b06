"""Training steps with PyTorch to try batch sizes with."""

from __future__ import annotations

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.dataset import Dataset
from shardmill.training.run.files.folds import divide_train_split
from shardmill.training.run.memory.sizes import sized
from shardmill.training.torch.memory.exhaustion import out_of_memory
from shardmill.training.torch.memory.figures import peak_device_bytes
from shardmill.training.torch.parts import build_parts
from shardmill.training.torch.ranks.group import TorchRanks, choose_device
from shardmill.training.torch.reading import open_training_input
from shardmill.training.torch.step import TrainStep

_STEPS = 2


class TorchSteps:
    """Implements ``TriedSteps`` on one device.

    Attributes:
        num_replicas: 1.
        num_records: the examples of the train split.
    """

    num_replicas = 1

    def __init__(self, config: TrainConfig, version: DatasetVersion) -> None:
        """Build the model.

        Raises:
            ConfigError: the model cannot be built.
        """
        self._version = version
        self._train = Dataset(version, config.reading).reader("train")
        self._own = choose_device(config, None)
        self._ranks = TorchRanks(0, 1, self._own.device)
        self._parts = build_parts(sized(config, 1), version, 1, self._ranks, self._own.device)
        self.num_records = len(self._train.table)

    def take(self, config: TrainConfig) -> None:
        """Take two steps; see ``TriedSteps``."""
        parts, size = self._parts, config.data.batch_size
        order = divide_train_split(config.data, self._train, self._version.manifest.classes).order
        reading = open_training_input(
            config, self._train, order, parts.spec.image_size, self._ranks, self._own, None
        )
        step = TrainStep(config, parts, parts.model)
        with out_of_memory():
            for number, batch in enumerate(reading.batches.steps(0, _STEPS)):
                step(batch, number, size)
            parts.totals.take()  # waits for the device

    def peak_device_bytes(self) -> dict[str, int]:
        """Return the most memory of the GPU so far."""
        return peak_device_bytes(self._own.device)
