"""How fast the stages are together: batches, the pipeline, training steps. Imports TensorFlow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from infra.catalog import DatasetVersion
from training.config import TrainConfig
from training.distribution import check_divisible, distribute, make_strategy
from training.order import TrainingOrder
from training.pipelines.training_input import Wanted, open_training_input
from training.profiling.stages import Stage, Subject
from training.profiling.verdict import Rates
from training.reading import BatchMaker
from training.reading.iterate import NumpyBatches
from training.session import build_parts
from training.train_step import make_train_step

_WARM_BATCHES = 3  # fill what is made ahead; the first training step compiles the model
_ENDLESS = 1_000_000  # steps


def batch_rate(subject: Subject) -> float:
    """Images a second as numpy arrays, by all threads, two batches at a time."""
    with contextlib.closing(subject.maker()) as maker:
        made = iter(NumpyBatches(maker, subject.order, 0, _ENDLESS))
        return _rate(lambda: next(made).images.shape[0], subject.seconds)


def accelerator() -> str | None:
    """The first GPU; None where the model computes in the memory that batches are made in."""
    found = tf.config.list_logical_devices("GPU")
    return found[0].name.removeprefix("/device:") if found else None


def transfer(subject: Subject, device: str) -> Stage:
    """From a numpy array to the memory of a device such as ``GPU:0``."""
    maker = BatchMaker(subject.records, image_size=subject.image_size, threads=1)
    images = maker.make(subject.order.step(0, 0)).images

    def copy() -> int:
        with tf.device(device):
            # One value of it comes back, which waits for the rest.
            float(tf.identity(tf.constant(images))[-1, -1, -1, -1])
        return int(images.shape[0])

    return Stage("transfer", 1e6 / _rate(copy, subject.seconds), f"to {device}")


def with_tensorflow(
    subject: Subject,
    config: TrainConfig,
    version: DatasetVersion,
    order: TrainingOrder,
    on_stage: Callable[[str], None],
    *,
    model: bool,
) -> Rates:
    """All rates.

    Args:
        subject: what is measured.
        config, version, order: of the training run that is looked at.
        on_stage: called with the name of each measurement before it is made.
        model: whether to measure training steps too.
    """
    on_stage("batches")
    batches = batch_rate(subject)
    strategy = make_strategy(config.run.devices)
    check_divisible(order.global_batch_size, strategy.num_replicas_in_sync)
    wanted = Wanted(config.data, config.reading, config.augment)
    reading = open_training_input(wanted, version, subject.records, order, subject.image_size)
    on_stage(f"pipeline ({reading})")
    read = iter(distribute(strategy, reading.pipeline, 0, _ENDLESS))
    size = order.global_batch_size
    pipeline_rate = _rate(lambda: (next(read), size)[1], subject.seconds)
    if not model:
        return Rates(batches, pipeline_rate)
    parts = build_parts(config, strategy, version, order)
    step = make_train_step(config, strategy, parts.model, parts.optimizer)

    def train_on(batch: Any) -> int:
        loss, _ = step(batch)
        float(loss)  # waits for the device
        return size

    on_stage("model")
    same = next(read)
    model_rate = _rate(lambda: train_on(same), subject.seconds)
    on_stage("training")
    return Rates(batches, pipeline_rate, model_rate, _rate(lambda: train_on(next(read)), subject.seconds))


def _rate(work: Callable[[], int], seconds: float) -> float:
    """Images a second of ``work``, which does a batch and returns its number of images; warmed up first."""
    for _ in range(_WARM_BATCHES):
        work()
    begin, images = time.perf_counter(), 0
    while True:
        images += work()
        if time.perf_counter() - begin > seconds:
            break
    return images / (time.perf_counter() - begin)
