"""Batch normalisation over all replicas that TensorFlow traces in linear time.

Keras adds up the moments of the replicas with ``ReplicaContext.all_reduce``. In a graph that is a custom
gradient, and TensorFlow walks back from its result to find the variables that it depends on: through the sum,
into the graphs of all other replicas, which have nothing to do with it. With L layers on replicas of one
process that takes time in proportion to L².

Here the sum takes its terms behind ``tf.stop_gradient``, where the walk ends; the gradient is the same. The
sum of values, the sum of squares and the count also travel as one tensor instead of three.

Between processes a collective of TensorFlow costs far more than the sum itself. ``sum_by`` lets a strategy
add up in another way.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

SumOfRanks = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]

_sums: WeakKeyDictionary[Any, tuple[SumOfRanks, int]] = WeakKeyDictionary()
# The last sum of each graph. All ranks must add up in the same sequence, that in which they were traced.
_last: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@contextlib.contextmanager
def sum_by(strategy: Any, total: SumOfRanks, most_bytes: int) -> Iterator[None]:
    """Add up over the replicas of a strategy, one in each rank, with a function of numpy.

    Args:
        strategy: the strategy.
        total: returns the sum of an array over all ranks; it may wait for them.
        most_bytes: larger tensors travel through the strategy as before.
    """
    _sums[strategy] = total, most_bytes
    try:
        yield
    finally:
        del _sums[strategy]


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
    return _total(value), sum_over_replicas


def _total(value: Any) -> Any:
    context = tf.distribute.get_replica_context()
    total, most_bytes = _sums.get(context.strategy, (None, 0))
    if total is not None and _size_bytes(value) <= most_bytes:
        return _sum_of_ranks(total, value)

    def add_up(strategy: Any, value: Any) -> Any:
        return strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, value, destinations=value)

    return context.merge_call(add_up, args=(tf.stop_gradient(value),))


def _size_bytes(tensor: Any) -> float:
    """Return the size of a tensor; infinite if its shape is not known."""
    elements = tensor.shape.num_elements()
    return math.inf if elements is None else elements * tensor.dtype.size


def _sum_of_ranks(total: SumOfRanks, value: Any) -> Any:
    """Call ``total`` after the sum that was traced before this one."""
    if not tf.inside_function():
        return tf.ensure_shape(tf.numpy_function(total, [value], value.dtype), value.shape)
    graph = tf.compat.v1.get_default_graph()
    with tf.control_dependencies([_last[graph]] if graph in _last else []):
        found = tf.numpy_function(total, [value], value.dtype)
    _last[graph] = found.op
    return tf.ensure_shape(found, value.shape)
