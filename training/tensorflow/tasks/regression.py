"""Regression: each example has T numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.export.measures import NumbersMeasure
from shardmill.training.results.metrics.regression import RegressionTally
from shardmill.training.results.predictions.columns import RegressionColumns
from shardmill.training.tasks.target_scale import target_scale
from shardmill.training.tasks.task import LabelSpec
from shardmill.training.tensorflow.augment_batches import mixed_targets


@dataclass(frozen=True, slots=True)
class Regression:
    """Squared error of standard scores, so that targets of any size train alike. Implements ``Task``.

    The model's outputs are standard scores; ``predictions`` turns them back into the unit of the labels.

    Attributes:
        mean: mean of each target over the train split.
        std: the standard deviation of each target over the train split, above 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    score_name = "absolute_error"

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean or min(self.std) <= 0:
            raise ValueError(
                f"mean {self.mean}, std {self.std}: needs one of each for every target, std above 0"
            )

    @property
    def num_outputs(self) -> int:
        """The number of targets, T."""
        return len(self.mean)

    @property
    def labels(self) -> LabelSpec:
        """The targets in their own unit."""
        return LabelSpec("targets", (self.num_outputs,), "float32")

    def training_losses(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: against the mixed target."""
        return self.losses(outputs, mixed_targets(labels, own_share))

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the squared error of each example in standard scores, averaged over the targets: [b]."""
        return tf.reduce_mean(tf.square(outputs - (labels - self.mean) / self.std), axis=-1)

    def scores(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the absolute error in the unit of the labels, averaged over the targets: float32 [b]."""
        return tf.reduce_mean(tf.abs(self._values(outputs) - mixed_targets(labels, own_share)), axis=-1)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``predicted`` float32 [b, T], in the unit of the labels."""
        return {"predicted": self._values(outputs)}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return ``values`` float32 [b, T], in the unit of the labels."""
        return {"values": self._values(outputs)}

    def form_measure(self) -> NumbersMeasure:
        """Return how ONNX and LiteRT forms are compared with the model."""
        return NumbersMeasure(self.std)

    def tally(self) -> RegressionTally:
        """Return an empty tally."""
        return RegressionTally(self.num_outputs)

    def columns(self) -> RegressionColumns:
        """Return the columns of a file of predictions."""
        return RegressionColumns()

    def _values(self, outputs: Any) -> Any:
        return outputs * self.std + self.mean


def build(version: DatasetVersion, _config: TrainConfig) -> Regression:
    """Make the task of a dataset version, with mean and deviation of its train split.

    Raises:
        DataError: a target has the same value in all records.
    """
    scale = target_scale(version)
    return Regression(scale.mean, scale.std)
