"""Single-label classification: each example has exactly one of C classes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.training.tasks.kinds import OneClass
from shardmill.training.tasks.task import LabelSpec
from shardmill.training.tensorflow.augment_batches import dominating_labels, mixed_loss


class SingleLabel(OneClass):
    """Softmax cross-entropy over logits. Implements ``Task``."""

    labels = LabelSpec("label", (), "int32")

    def training_losses(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the cross-entropy of each example: float32 [b]. Mixed: of both labels, in their shares."""
        if own_share is None:
            return self._smoothed(outputs, labels)
        return mixed_loss(lambda wanted: self._smoothed(outputs, wanted), labels, own_share)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the cross-entropy (nats) of each example: float32 [b]."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)

    def scores(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return 1 where the class with the greater share was predicted, else 0: float32 [b]."""
        right = labels if own_share is None else dominating_labels(labels, own_share)
        return tf.cast(tf.equal(tf.argmax(outputs, axis=-1, output_type=tf.int32), right), tf.float32)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``predicted`` int64 [b], a class, and ``probabilities`` float32 [b, C]."""
        return {"predicted": tf.argmax(outputs, axis=-1), "probabilities": tf.nn.softmax(outputs)}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return ``probabilities`` float32 [b, C] and ``label`` int64 [b]."""
        probabilities = tf.nn.softmax(outputs)
        return {"probabilities": probabilities, "label": tf.argmax(probabilities, axis=-1)}

    def _smoothed(self, outputs: Any, labels: Any) -> Any:
        losses = self.losses(outputs, labels)
        if not self.label_smoothing:
            return losses
        spread = -tf.reduce_mean(tf.nn.log_softmax(outputs), axis=-1)
        return (1 - self.label_smoothing) * losses + self.label_smoothing * spread
