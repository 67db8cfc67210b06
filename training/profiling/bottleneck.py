"""Measure batches, a framework's input and training steps, and find the bottleneck and its remedy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.order import Order, Passes
from shardmill.training.profiling.stages import Stage, Subject
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.batch_maker import NumpyBatches
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
    order: Order,
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


# Storage is the bottleneck if the first read of a record takes this many times the rest of a thread's work.
_SLOW_STORAGE = 1.5
# The model is the bottleneck if reading is this much faster.
_ENOUGH = 1.1
# Stored images with sides this much larger than the model's waste decoding time.
_TOO_LARGE = 1.6


@dataclass(frozen=True, slots=True)
class Rates:
    """Images a second of several stages together; None: not measured.

    Attributes:
        batches: batches as numpy arrays, by all threads.
        pipeline: the same as a ``tf.data`` pipeline.
        model: training steps on one batch that is there already.
        training: training steps on the pipeline's batches.
    """

    batches: float
    pipeline: float | None = None
    model: float | None = None
    training: float | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The bottleneck: its name, the reason, and the remedy."""

    stage: str
    reason: str
    remedy: str


def find_bottleneck(
    stages: Sequence[Stage], rates: Rates, *, num_cpus: int, stored_side: float, image_size: int
) -> Bottleneck:
    """Find the bottleneck.

    Args:
        stages: the stages, each measured alone on one thread.
        rates: the rates of all stages together.
        num_cpus: the CPUs that this process may use.
        stored_side: median short side of the stored images (pixels).
        image_size: height and width of the images (pixels).
    """
    costs = {stage.name: stage.microseconds for stage in stages}
    first_read = costs.pop("read (first time)", 0.0)
    work = sum(costs.values())
    reading = rates.pipeline or rates.batches
    if rates.model is not None and reading >= _ENOUGH * rates.model:
        return _model(rates.model, reading)
    if first_read > _SLOW_STORAGE * num_cpus * work:
        return _storage(first_read, work)
    name = max(costs, key=lambda each: costs[each])
    share = costs[name] / work
    reason = f"{share:.0%} of the work on an image: {costs[name]:,.0f} of {work:,.0f} µs of one core"
    if rates.model is not None:
        reason += f"; the model could take {rates.model:,.0f} images/s and gets {reading:,.0f}"
    return Bottleneck(name, reason, _remedy(name, stored_side, image_size))


def _model(model: float, reading: float) -> Bottleneck:
    return Bottleneck(
        "model",
        f"a training step takes {model:,.0f} images/s, and {reading:,.0f} could be read",
        "a faster device, run.mixed_precision, or a larger data.global_batch_size; reading is fast enough",
    )


def _storage(first_read: float, work: float) -> Bottleneck:
    return Bottleneck(
        "read (first time)",
        f"storage takes {first_read:,.0f} µs a record, and all the rest {work:,.0f} µs",
        "keep images between epochs: reading.cache = 'memory' or 'disk'; or read neighbours together: "
        "data.granularity = 'block'",
    )


def _remedy(stage: str, stored_side: float, image_size: int) -> str:
    if stage in ("decode", "resize") and stored_side > _TOO_LARGE * image_size:
        return (
            f"images are stored with a short side of {stored_side:,.0f} and used at {image_size}: "
            f"prepare them with image.size = {round(image_size * 8 / 7)}"
        )
    return _REMEDIES[stage]


_REMEDIES = {
    "plan": "larger batches: data.global_batch_size",
    "read": "records are large: prepare with a smaller image.size or image.quality",
    "inflate": "prepare with container = 'none': JPEGs hardly shrink in gzip",
    "decode": "more CPU cores; or keep decoded images: reading.cache, in the decoded form",
    "resize": "prepare images nearer to the size they are used at",
    "transfer": "run.mixed_precision does not help here; a smaller data.image_size does",
    "augment": "turn augmentation of single images down; that of whole batches (augment.randaugment) works "
    "on the device",
}
