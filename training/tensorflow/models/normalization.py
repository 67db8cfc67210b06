"""Layers that normalise: the pixels at the input, and batch normalisation over all replicas.

TensorFlow traces this batch normalisation in linear time.

Keras adds up the moments of the replicas with ``ReplicaContext.all_reduce``. In a graph that is a custom
gradient, and TensorFlow walks back from its result to find the variables that it depends on: through the sum,
into the graphs of all other replicas, which have nothing to do with it. With L layers on replicas of one
process that takes time in proportion to L².

Here the sum takes its terms behind ``tf.stop_gradient``, where the walk ends; the gradient is the same.

Each replica sends its count, its means and its sums of squared deviations, as one tensor, and the replicas
combine them as Chan, Golub and LeVeque do ("Updating formulae and a pairwise algorithm for computing sample
variances", 1979). The difference of the mean square and the squared mean, which Keras takes, loses all digits
of a variance that is small beside the mean.

Between processes a collective of TensorFlow costs far more than the sum itself. ``sum_by`` lets a strategy
add up in another way.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.arguments import checked
from shardmill.training.models.spec import ModelSpec

SumOfRanks = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]

# bool [b]: the rows of the step that is traced in this thread which are no padding.
_real_rows: ContextVar[Any] = ContextVar("real_rows", default=None)
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


@contextlib.contextmanager
def only_real_rows(is_real: Any | None) -> Iterator[None]:
    """Leave padding out of the moments that are traced in the block.

    Args:
        is_real: bool [b], for each row of the batch of this replica; None: all are.
    """
    token = _real_rows.set(is_real)
    try:
        yield
    finally:
        _real_rows.reset(token)


class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """``keras.layers.BatchNormalization`` without padding; with ``synchronized=True`` traced in linear time.

    It has the name of Keras' own layer, since names of variables are made from it: a checkpoint of one device
    must fit the model on several.
    """

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Normalise ``inputs``, float [b, ..., C]."""
        context = tf.distribute.get_replica_context()
        elsewhere = mask is not None or self.renorm or context is None
        ours = self.synchronized or _real_rows.get() is not None
        if elsewhere or not (ours and training and self.trainable):
            return super().call(inputs, training=training, mask=mask)
        x = tf.cast(inputs, tf.float32)
        moments = _own_moments(x, self.axis)
        if self.synchronized:
            moments = _of_all_replicas(moments)
        mean, variance = _mean_and_variance(moments)
        # A batch of padding alone leaves the moving statistics as they are.
        kept = tf.where(tf.reduce_any(moments[:, 0] > 0), self.momentum, 1.0)
        for moving, found in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * kept + found * (1.0 - kept))
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


def _own_moments(x: Any, axis: int) -> Any:
    """Return the moments of each channel over the real rows of this replica.

    Returns:
        float32 [1, 1 + 2C]: the number of values of a channel, the means, the sums of squared deviations.
    """
    rank = len(x.shape)
    channel = axis % rank
    places = [number for number in range(1, rank) if number != channel]
    shape = tf.shape(x)
    is_real = _real_rows.get()
    weights = tf.ones(shape[:1], x.dtype) if is_real is None else tf.cast(is_real, x.dtype)

    def total(values: Any) -> Any:
        return tf.linalg.matvec(tf.reduce_sum(values, places), weights, transpose_a=True)

    count = tf.reduce_sum(weights) * tf.cast(tf.reduce_prod(tf.gather(shape, places)), x.dtype)
    mean = tf.math.divide_no_nan(total(x), count)
    # The sum of the deviations is 0, and with it the gradient of the squares to the mean.
    center = tf.reshape(tf.stop_gradient(mean), [-1 if number == channel else 1 for number in range(rank)])
    squares = total(tf.math.squared_difference(x, center))
    return tf.concat([tf.reshape(count, [1]), mean, squares], 0)[tf.newaxis]


def _of_all_replicas(moments: Any) -> Any:
    """Return the moments of every replica, float32 [R, 1 + 2C], from those of this one."""
    context = tf.distribute.get_replica_context()
    number, count = context.replica_id_in_sync_group, context.num_replicas_in_sync
    own_row = tf.one_hot(number, count, dtype=moments.dtype)[:, tf.newaxis]
    # With zeros in the other rows the sum puts the rows together.
    return sum_over_replicas(own_row * moments)


def _mean_and_variance(moments: Any) -> tuple[Any, Any]:
    """Combine the moments of replicas, which may have different numbers of examples: float32 [C] each."""
    channels = (moments.shape[1] - 1) // 2
    counts, means, squares = tf.split(moments, [1, channels, channels], 1)
    count = tf.reduce_sum(counts)
    mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, 0), count)
    squares += counts * tf.math.squared_difference(means, mean)
    return mean, tf.math.divide_no_nan(tf.reduce_sum(squares, 0), count)


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


@checked
def normalized(images: Any, spec: ModelSpec) -> Any:
    """Normalise images as ``spec.normalization`` says; a value that is not finite becomes the mean.

    Layers without weights: a weights file fits models of any dataset.

    Args:
        images: Keras tensor [B, S, S, C].
        spec: the parameters of the model.

    Raises:
        ConfigError: see ``spec.normalization``.
    """
    by = spec.normalization
    rescale = keras.layers.Rescaling(
        scale=[1 / std for std in by.std],
        offset=[-mean / std for mean, std in zip(by.mean, by.std, strict=True)],
        name="normalization",
        # Half precision holds no whole numbers above 2,048.
        dtype=None if spec.dtype == "uint8" else "float32",
    )
    if spec.dtype != "float32":
        return rescale(images)
    # LiteRT does not know "is finite". tf2onnx selects by products, in which NaN would stay, unless a
    # constant is infinite; so what is not finite becomes the largest number first.
    infinity, largest = np.float32(np.inf), np.finfo(np.float32).max
    ops = keras.ops
    bounded = ops.minimum(ops.where(ops.abs(images) < infinity, images, infinity), largest)
    return rescale(ops.where(bounded < largest, bounded, np.array(by.mean, np.float32)))
