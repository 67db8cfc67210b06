"""Batch normalisation over all replicas that TensorFlow traces in linear time.

Keras adds up the moments of the replicas with ``ReplicaContext.all_reduce``. In a graph that is a custom
gradient, and TensorFlow walks back from its result to find the variables that it depends on: through the sum,
into the graphs of all other replicas, which have nothing to do with it. With L layers on replicas of one
process that takes time in proportion to L².

Here the sum takes its terms behind ``tf.stop_gradient``, where the walk ends; the gradient is the same. The
sum of values, the sum of squares and the count also travel as one tensor instead of three.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """``keras.layers.BatchNormalization``; with ``synchronized=True`` it is traced in linear time.

    It has the name of Keras' own layer, since names of variables are made from it: a checkpoint of one device
    must fit the model on several.
    """

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Normalise ``inputs``, float [b, ..., C]."""
        context = tf.distribute.get_replica_context()
        elsewhere = mask is not None or self.renorm or context is None
        if elsewhere or not (self.synchronized and training and self.trainable):
            return super().call(inputs, training=training, mask=mask)
        x = tf.cast(inputs, tf.float32)
        mean, variance = _moments_of_all_replicas(x, self.axis)
        for moving, found in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * self.momentum + found * (1.0 - self.momentum))
        normalized = keras.ops.batch_normalization(
            x=x,
            mean=mean,
            variance=variance,
            axis=self.axis,
            offset=self.beta if self.center else None,
            scale=self.gamma if self.scale else None,
            epsilon=self.epsilon,
        )
        return tf.cast(normalized, self.compute_dtype)


def _moments_of_all_replicas(x: Any, axis: int) -> tuple[Any, Any]:
    """Return mean and variance of each channel over the examples of all replicas: float32 [C] each.

    Replicas may have different numbers of examples.
    """
    rank = len(x.shape)
    channel = axis % rank
    axes = [number for number in range(rank) if number != channel]
    count = tf.cast(tf.size(x) / tf.shape(x)[channel], x.dtype)
    sums = [tf.reduce_sum(x, axes), tf.reduce_sum(tf.square(x), axes), tf.reshape(count, [1])]
    total = sum_over_replicas(tf.concat(sums, 0))
    values, squares, counts = tf.split(total, [x.shape[channel], x.shape[channel], 1])
    mean = tf.math.divide_no_nan(values, counts)
    variance = tf.math.divide_no_nan(squares, counts) - tf.square(mean)
    return mean, tf.maximum(variance, 0.0)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def sum_over_replicas(value: Any) -> tuple[Any, Any]:
    """Add up a tensor over all replicas. Its gradient is the sum of the gradients over all replicas."""

    def add_up(strategy: Any, value: Any) -> Any:
        return strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, value, destinations=value)

    context = tf.distribute.get_replica_context()
    return context.merge_call(add_up, args=(tf.stop_gradient(value),)), sum_over_replicas
