"""Measure the computing speed of each rank, without the time spent waiting for the others.

Ranks wait for each other in the middle of a step: they sum gradients, and the statistics of batch
normalisation. So the time of a step is the same for all and says nothing about one of them. Here each rank
runs forward and backward pass on a copy of the model that belongs to no strategy. All ranks do so at the same
time, so that those that share a processor have as much of it as in training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from shardmill.training.config import TrainConfig
from shardmill.training.run.sharing.division import MeasuredRank
from shardmill.training.run.sharing.timing import seconds_of_step
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.models.layers import freeze_layers
from shardmill.training.tensorflow.optimization.precision import precision
from shardmill.training.tensorflow.parts import TrainingParts
from shardmill.training.tensorflow.ranks.device_name import kind_of_device, place_of_device
from shardmill.training.tensorflow.ranks.group import group_of
from shardmill.training.tensorflow.ranks.strategy import num_local_replicas


def measured_rank(parts: TrainingParts, config: TrainConfig) -> MeasuredRank:
    """Describe this rank, whose speed is measured on a copy of the model that belongs to no strategy."""

    def seconds_per_example(rows: int) -> list[float]:
        ranks, local = group_of(parts.strategy), num_local_replicas(parts.strategy)
        on_device = max(1, rows // local // config.run.accumulate_steps)
        step = _local_step(parts, config, on_device)
        seconds = seconds_of_step(lambda: float(step()), ranks)  # the number waits for the device
        return [float(each) for each in ranks.all_values(seconds / on_device / local)]

    return MeasuredRank(kind_of_device(), place_of_device(), seconds_per_example)


def _local_step(parts: TrainingParts, config: TrainConfig, rows: int) -> Callable[[], Any]:
    """Return a forward and backward pass on one device of this process, without an update."""
    with precision(config.run.mixed_precision):
        model = build_model(replace(parts.spec, synchronized=False, weights=None))
    freeze_layers(model, config.model.freeze)
    spec = parts.spec
    images = tf.zeros([rows, spec.image_size, spec.image_size, spec.image_channels], tf.uint8)

    def step() -> Any:
        with tf.GradientTape() as tape:
            # Any loss will do: the work does not depend on it.
            loss = tf.reduce_sum(tf.cast(model(images, training=True), tf.float32))
        gradients = tape.gradient(loss, model.trainable_variables)
        return tf.linalg.global_norm([gradient for gradient in gradients if gradient is not None])

    compiled: Callable[[], Any] = tf.function(step, autograph=False)
    return compiled
