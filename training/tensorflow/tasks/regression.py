"""Regression: each example has T numbers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.training.tasks.kinds import Numbers
from shardmill.training.tasks.task import LabelSpec
from shardmill.training.tensorflow.augment_batches import mixed_targets


class Regression(Numbers):
    """Squared error of standard scores, so that targets of any size train alike. Implements ``Task``.

    ``predictions`` turns the outputs of the model back into the unit of the labels.
    """

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

    def _values(self, outputs: Any) -> Any:
        return outputs * self.std + self.mean
