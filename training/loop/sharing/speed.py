"""Measure the computing speed of each rank, without the time spent waiting for the others.

Ranks wait for each other in the middle of a step: they sum gradients, and the statistics of batch
normalisation. So the time of a step is the same for all and says nothing about one of them. Here each rank
runs forward and backward pass on a copy of the model that belongs to no strategy. All ranks do so at the same
time, so that those that share a processor have as much of it as in training.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from training.config import TrainConfig
from training.loop.optimization.precision import precision
from training.loop.parts import TrainingParts
from training.models import build_model
from training.models.freezing import freeze_layers
from training.ranks.group import group_of
from training.ranks.strategy import num_local_replicas

_LEAST_SECONDS = 1.0
_LEAST_STEPS = 5
_SKIPPED = 2  # the first call compiles, and the second may still choose algorithms


def seconds_per_example(parts: TrainingParts, config: TrainConfig, rows: int) -> list[float]:
    """Return the time that each rank needs for an example (seconds), by rank. Every rank must call this.

    Args:
        parts: the model and the strategy.
        config: the configuration of the run.
        rows: the rows of a step that this rank takes to measure.
    """
    on_device = max(1, rows // num_local_replicas(parts.strategy) // config.run.accumulate_steps)
    step = _local_step(parts, config, on_device)
    own: list[float] = []
    for _ in range(_SKIPPED):
        own = [_timed(step)]
    ranks = group_of(parts.strategy)
    window = max(_LEAST_SECONDS, _LEAST_STEPS * max(ranks.all_values(own[0])))
    own.clear()
    until = time.perf_counter() + window
    while not own or time.perf_counter() < until:
        own.append(_timed(step))
    of_rank = statistics.median(own) / on_device / num_local_replicas(parts.strategy)
    return [float(each) for each in ranks.all_values(of_rank)]


def _timed(step: Callable[[], Any]) -> float:
    started = time.perf_counter()
    float(step())  # waits for the device
    return time.perf_counter() - started


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
