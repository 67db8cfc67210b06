"""Multi-label classification: each example has any number of C classes, also none."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.training.tasks.kinds import SeveralClasses
from shardmill.training.tasks.task import LabelSpec
from shardmill.training.tensorflow.augment_batches import mixed_targets

_THRESHOLD = 0.5  # a class is predicted if it is more likely than not


class MultiLabel(SeveralClasses):
    """Binary cross-entropy of each class, averaged over the classes. Implements ``Task``."""

    @property
    def labels(self) -> LabelSpec:
        """The labels: 1 for each class of the example, else 0."""
        return LabelSpec("labels", (self.num_outputs,), "float32")

    def training_losses(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: against both labels, in their shares."""
        targets = mixed_targets(labels, own_share)
        smoothed = targets * (1.0 - self.label_smoothing) + 0.5 * self.label_smoothing
        return self.losses(outputs, smoothed)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the mean binary cross-entropy (nats) of each example: float32 [b]."""
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs), axis=-1)

    def scores(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return 1 where exactly the right classes were predicted, else 0: float32 [b].

        Of mixed labels those with a share of at least one half are right.
        """
        wanted = mixed_targets(labels, own_share) >= _THRESHOLD
        return tf.cast(tf.reduce_all((outputs > 0.0) == wanted, axis=-1), tf.float32)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``predicted`` bool [b, C] and ``probabilities`` float32 [b, C], each class by itself."""
        probabilities = tf.sigmoid(outputs)
        return {"predicted": outputs > 0.0, "probabilities": probabilities}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return ``probabilities`` float32 [b, C] and ``predicted`` bool [b, C]."""
        return {"probabilities": tf.sigmoid(outputs), "predicted": outputs > 0.0}
