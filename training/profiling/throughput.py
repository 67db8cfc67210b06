"""Measure the throughput of batches, of a framework's input, and of training steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.order import Passes, TrainingOrder
from shardmill.training.profiling.bottleneck import Rates
from shardmill.training.profiling.stages import Stage, Subject
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.batches.iterate import NumpyBatches
from shardmill.training.run.framework import Framework
from shardmill.training.run.sharing.division import Division, check_rows

_WARM_BATCHES = 3  # fill the batches that are made ahead; the first training step compiles the model
_ENDLESS = 1_000_000  # steps


def batch_rate(subject: Subject) -> float:
    """Measure batches as numpy arrays, made by all threads, two batches at a time (images/s)."""
    with contextlib.closing(subject.maker()) as maker:
        made = iter(NumpyBatches(maker, subject.order, Passes(range(_ENDLESS))))
        return _rate(lambda: next(made).images.shape[0], subject.seconds)


def transfer(subject: Subject, framework: Framework) -> Stage:
    """Measure copying a batch to the memory of the device that trains."""
    maker = BatchMaker(subject.records, replace(subject.spec, augment=None), threads=1)
    images = maker.make(subject.order.step(0, 0)).images

    def copy() -> int:
        framework.copy_to_device(images)
        return int(images.shape[0])

    return Stage("transfer", 1e6 / _rate(copy, subject.seconds), f"to {framework.kind_of_device}")


def measure_rates(
    subject: Subject,
    config: TrainConfig,
    version: DatasetVersion,
    order: TrainingOrder,
    framework: Framework,
    on_stage: Callable[[str], None],
    *,
    model: bool,
) -> Rates:
    """Measure the images a second of batches, of the framework's input and of training steps.

    Args:
        subject: the records, the order and the images.
        config: the configuration of the training run.
        version: the dataset version.
        order: the order of the training run.
        framework: trains.
        on_stage: is called with the name of each measurement before it is made.
        model: measure training steps too.
    """
    on_stage("batches")
    batches = batch_rate(subject)
    check_rows(config, 1, framework.num_local_replicas)
    size = order.global_batch_size
    examples = framework.open_input(config, subject.records, order, Division((size,)))
    on_stage(f"pipeline ({examples.opened})")
    read = examples.steps(0, _ENDLESS)
    pipeline_rate = _rate(lambda: (next(read), size)[1], subject.seconds)
    if not model:
        return Rates(batches, pipeline_rate)
    trained = framework.build(config, version, order.steps_per_epoch)
    trained.begin_stage(config, size, head_alone=False)
    same = next(read)

    def train(again: bool) -> int:
        trained.step(same if again else next(read), 0, size)
        trained.take_totals()  # waits for the device
        return size

    on_stage("model")
    model_rate = _rate(lambda: train(True), subject.seconds)
    on_stage("training")
    return Rates(batches, pipeline_rate, model_rate, _rate(lambda: train(False), subject.seconds))


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
