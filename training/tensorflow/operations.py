"""The operations of tasks with TensorFlow."""

# ruff: noqa: D102  ``Operations`` describes each method

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from shardmill.training.tasks.task import Operations


class TensorFlowOperations(Operations):
    """Operations on tensors of TensorFlow; ``Operations`` describes each."""

    def class_losses(self, logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if not smoothing:
            return losses
        spread = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)
        return (1 - smoothing) * losses + smoothing * spread

    def label_losses(self, logits: Any, targets: Any) -> Any:
        return tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)

    def softmax(self, logits: Any) -> Any:
        return tf.nn.softmax(logits)

    def sigmoid(self, logits: Any) -> Any:
        return tf.sigmoid(logits)

    def argmax(self, values: Any) -> Any:
        return tf.argmax(values, axis=-1)

    def mean(self, values: Any) -> Any:
        return tf.reduce_mean(values, axis=-1)

    def sum_of_pixels(self, values: Any) -> Any:
        return tf.reduce_sum(values, axis=(-2, -1))

    def all(self, values: Any) -> Any:
        return tf.reduce_all(values, axis=-1)

    def is_nan(self, values: Any) -> Any:
        return tf.math.is_nan(values)

    def where(self, condition: Any, values: Any, others: Any) -> Any:
        return tf.where(condition, values, others)

    def cast(self, values: Any, dtype: str) -> Any:
        return tf.cast(values, dtype)

    def constant(self, values: tuple[float, ...], like: Any) -> Any:
        return tf.constant(values, like.dtype)


OPERATIONS: Final = TensorFlowOperations()
