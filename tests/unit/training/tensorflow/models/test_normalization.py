"""Batch normalisation over two replicas beside Keras' own and numpy, in a process with logical devices."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from shardmill.training.tensorflow import starting
starting.start(devices="cpu:2", seed=1, deterministic=True)
import keras
import numpy as np
import tensorflow as tf
from shardmill.training.tensorflow.models.normalization import BatchNormalization, only_real_rows
from shardmill.training.tensorflow.ranks.strategy import make_strategy

strategy = make_strategy("cpu:2")
chance = np.random.default_rng(0)
# The replicas have different numbers of examples, and the second ones of another mean.
images = [chance.normal(loc, 1.0, (rows, 6, 6, 3)).astype(np.float32) for loc, rows in ((0, 3), (2, 5))]
labels = [chance.integers(0, 4, len(part)).astype(np.int32) for part in images]


def of_replica(parts):
    context = lambda replica: tf.constant(parts[replica.replica_id_in_sync_group])
    return strategy.experimental_distribute_values_from_function(context)


def trained(layer):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        x = inputs = keras.Input((6, 6, 3))
        for options in ({}, {"momentum": 0.5, "epsilon": 0.1}, {"scale": False}, {"center": False}):
            x = layer(synchronized=True, **options)(keras.layers.Conv2D(4, 3, padding="same")(x))
        model = keras.Model(inputs, keras.layers.Dense(4)(keras.layers.GlobalMaxPooling2D()(x)))
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)

    def on_replica(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / 8
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    step = tf.function(lambda *batch: strategy.run(on_replica, args=batch))
    for _ in range(3):
        step(of_replica(images), of_replica(labels))
    paths = [variable.path.split("/")[0].rstrip("_0123456789") for variable in model.variables]
    return paths, model.get_weights(), model(images[0]).numpy()


names, weights, outputs = trained(keras.layers.BatchNormalization)
own_names, own_weights, own_outputs = trained(BatchNormalization)
assert own_names == names, own_names
for name, found, expected in zip(names, own_weights, weights):
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-6), name
assert np.allclose(own_outputs, outputs, rtol=1e-5, atol=1e-6)


def normalised(parts, real=None):
    # The outputs of each replica, and the moving statistics, which take over the moments at once.
    with strategy.scope():
        layer = BatchNormalization(momentum=0.0, epsilon=0.0, synchronized=True)
        layer.build(parts[0].shape)

    def on_replica(images, is_real):
        with only_real_rows(is_real if real else None):
            return layer(images, training=True)

    flags = real or [np.ones(len(part), bool) for part in parts]
    step = tf.function(lambda *batch: strategy.run(on_replica, args=batch))
    found = strategy.experimental_local_results(step(of_replica(parts), of_replica(flags)))
    return [part.numpy() for part in found], layer.moving_mean.numpy(), layer.moving_variance.numpy()


EPSILON = np.finfo(np.float32).eps
for deviations in (30, 300, 3000):
    parts = [chance.normal(deviations, 1.0, (rows, 6, 6, 3)).astype(np.float32) for rows in (3, 5)]
    exact = np.concatenate(parts).astype(np.float64)
    mean, variance = exact.mean((0, 1, 2)), exact.var((0, 1, 2))
    outputs, moving_mean, moving_variance = normalised(parts)
    # As the layer of Keras on one device, which takes x and the mean apart in float32.
    tolerance = 16 * deviations * EPSILON
    assert np.allclose(np.concatenate(outputs), (exact - mean) / np.sqrt(variance), rtol=0, atol=tolerance)
    assert np.allclose(moving_mean, mean, rtol=4 * EPSILON)
    # The mean of each replica is rounded to EPSILON of itself.
    assert np.allclose(moving_variance, variance, rtol=tolerance)

parts = [chance.normal(3.0, 1.0, (4, 6, 6, 3)).astype(np.float32) for _ in range(2)]
for real in ([[1, 1, 0, 0], [1, 1, 1, 1]], [[1, 1, 1, 0], [0, 0, 0, 0]]):
    real = [np.array(flags, bool) for flags in real]
    exact = np.concatenate([part[flags] for part, flags in zip(parts, real)]).astype(np.float64)
    _, moving_mean, moving_variance = normalised(parts, real)
    assert np.allclose(moving_mean, exact.mean((0, 1, 2)), rtol=4 * EPSILON)
    assert np.allclose(moving_variance, exact.var((0, 1, 2)), rtol=16 * EPSILON)
none = [np.zeros(4, bool)] * 2
_, moving_mean, moving_variance = normalised(parts, none)
assert (moving_mean == 0).all() and (moving_variance == 1).all()  # as they began
print("equal")
"""


def test_two_replicas_normalise_as_numpy_and_train_as_with_the_layer_of_keras() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("equal")
