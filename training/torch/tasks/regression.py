"""Regression with PyTorch: each example has T numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.export.measures import NumbersMeasure
from shardmill.training.results.metrics.regression import RegressionTally
from shardmill.training.results.predictions.columns import RegressionColumns
from shardmill.training.tasks.target_scale import target_scale
from shardmill.training.torch.data.transforms.device import AugmentedBatch


@dataclass(frozen=True, slots=True)
class Regression:
    """Squared error of standard scores, as with TensorFlow. Implements ``Task``.

    Attributes:
        mean: mean of each target over the train split.
        std: the standard deviation of each target over the train split, above 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    score_name = "absolute_error"

    @property
    def num_outputs(self) -> int:
        """The number of targets, T."""
        return len(self.mean)

    def training_losses(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: against the mixed target."""
        return self._losses(outputs, batch.mixed_targets())

    def scores(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return the absolute error in the unit of the labels, averaged over the targets: float32 [b]."""
        return (self.served(outputs) - batch.mixed_targets()).abs().mean(dim=1)

    def evaluated(self, outputs: Any, labels: Any) -> dict[str, Any]:
        """Return ``losses`` float32 [b], and ``predicted`` float32 [b, T] in the unit of the labels."""
        return {"losses": self._losses(outputs, labels), "predicted": self.served(outputs)}

    def served(self, outputs: Any) -> Any:
        """Return the numbers in the unit of the labels: float32 [b, T]."""
        return outputs * _like(self.std, outputs) + _like(self.mean, outputs)

    def form_measure(self) -> NumbersMeasure:
        """Return how exported forms are compared with the model."""
        return NumbersMeasure(self.std)

    def tally(self) -> RegressionTally:
        """Return an empty tally."""
        return RegressionTally(self.num_outputs)

    def columns(self) -> RegressionColumns:
        """Return the columns of a file of predictions."""
        return RegressionColumns()

    def _losses(self, outputs: Any, labels: Any) -> Any:
        wanted = (labels - _like(self.mean, outputs)) / _like(self.std, outputs)
        return (outputs - wanted).square().mean(dim=1)


def build(version: DatasetVersion, _config: TrainConfig) -> Regression:
    """Make the task of a dataset version, with mean and deviation of its train split.

    Raises:
        DataError: a target has the same value in all records.
    """
    scale = target_scale(version)
    return Regression(scale.mean, scale.std)


def _like(values: tuple[float, ...], outputs: Any) -> Any:
    return torch.tensor(values, dtype=outputs.dtype, device=outputs.device)
