"""Measure the throughput of batches, of the pipeline and of training steps. Imports TensorFlow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.order import Passes, TrainingOrder
from shardmill.training.profiling.bottleneck import Rates
from shardmill.training.profiling.stages import Stage, Subject
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.batches.iterate import NumpyBatches
from shardmill.training.tensorflow.data.training_input import InputSettings, open_training_input
from shardmill.training.tensorflow.parts import build_parts
from shardmill.training.tensorflow.ranks.strategy import check_divisible, distribute, make_strategy
from shardmill.training.tensorflow.step import TrainStep

_WARM_BATCHES = 3  # fill the batches that are made ahead; the first training step compiles the model
_ENDLESS = 1_000_000  # steps


def batch_rate(subject: Subject) -> float:
    """Measure batches as numpy arrays, made by all threads, two batches at a time (images/s)."""
    with contextlib.closing(subject.maker()) as maker:
        made = iter(NumpyBatches(maker, subject.order, Passes(range(_ENDLESS))))
        return _rate(lambda: next(made).images.shape[0], subject.seconds)


def accelerator() -> str | None:
    """Return the first GPU; None if there is none."""
    found = tf.config.list_logical_devices("GPU")
    return found[0].name.removeprefix("/device:") if found else None


def transfer(subject: Subject, device: str) -> Stage:
    """Measure copying a batch to the memory of a device such as ``GPU:0``."""
    maker = BatchMaker(subject.records, image_size=subject.image_size, threads=1)
    images = maker.make(subject.order.step(0, 0)).images

    def copy() -> int:
        with tf.device(device):
            # Reading one value back waits for the whole copy.
            float(tf.identity(tf.constant(images))[-1, -1, -1, -1])
        return int(images.shape[0])

    return Stage("transfer", 1e6 / _rate(copy, subject.seconds), f"to {device}")


def measure_rates(
    subject: Subject,
    config: TrainConfig,
    version: DatasetVersion,
    order: TrainingOrder,
    on_stage: Callable[[str], None],
    *,
    model: bool,
) -> Rates:
    """Measure the images a second of batches, of the pipeline and of training steps.

    Args:
        subject: the records, the order and the images.
        config: the configuration of the training run.
        version: the dataset version.
        order: the order of the training run.
        on_stage: is called with the name of each measurement before it is made.
        model: measure training steps too.
    """
    on_stage("batches")
    batches = batch_rate(subject)
    strategy = make_strategy(config.run.devices)
    check_divisible(order.global_batch_size, strategy)
    settings = InputSettings(config.data, config.reading, config.augment, subject.objects)
    reading = open_training_input(settings, subject.records, order, subject.image_size)
    on_stage(f"pipeline ({reading})")
    read = iter(distribute(strategy, reading.pipeline, 0, _ENDLESS))
    size = order.global_batch_size
    pipeline_rate = _rate(lambda: (next(read), size)[1], subject.seconds)
    if not model:
        return Rates(batches, pipeline_rate)
    parts = build_parts(config, strategy, version, order.steps_per_epoch)
    step = TrainStep(config, parts, size // strategy.num_replicas_in_sync)

    def train_on(batch: Any) -> int:
        step(batch, size)
        parts.totals.take()  # waits for the device
        return size

    on_stage("model")
    same = next(read)
    model_rate = _rate(lambda: train_on(same), subject.seconds)
    on_stage("training")
    return Rates(batches, pipeline_rate, model_rate, _rate(lambda: train_on(next(read)), subject.seconds))


def _rate(work: Callable[[], int], seconds: float) -> float:
    """Return the images a second of ``work``, which does a batch and returns its number of images."""
    for _ in range(_WARM_BATCHES):
        work()
    begin, images = time.perf_counter(), 0
    while True:
        images += work()
        if time.perf_counter() - begin > seconds:
            break
    return images / (time.perf_counter() - begin)
