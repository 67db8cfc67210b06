"""Measure each stage from a shard to a batch alone, on one thread. No TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.preparation import SampleKind
from shardmill.training.augment.parameters import augment_image
from shardmill.training.order import Order, StepPlan
from shardmill.training.reading import BatchMaker, EncodedImage, ShardReader
from shardmill.training.reading.decode import cut_window, resize_into
from shardmill.training.reading.example_spec import ExampleSpec

_AT_A_TIME = 8  # records, as the threads of a BatchMaker take them


@dataclass(frozen=True, slots=True)
class Stage:
    """The cost of one stage, measured alone.

    Attributes:
        name: as in the table.
        microseconds: processor time (microseconds) of one core, an image.
        detail: what else is to be known, for people.
    """

    name: str
    microseconds: float
    detail: str = ""

    def images_per_second(self, num_cpus: int) -> float:
        """Return the images a second if all cores did nothing else."""
        return num_cpus * 1e6 / self.microseconds if self.microseconds > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Subject:
    """The records, the order and the settings to measure.

    Attributes:
        records: the records of the split.
        order: the order of the records.
        spec: what batches hold.
        seconds: to spend on each stage, at most (and at least one batch).
    """

    records: ShardReader
    order: Order
    spec: ExampleSpec
    seconds: float

    @property
    def image_size(self) -> int:
        """Height and width of the images (pixels)."""
        assert self.spec.image_size is not None, "training has images of one size"
        return self.spec.image_size

    @property
    def decoded(self) -> SampleKind:
        """The samples of decoded images."""
        return self.records.split.version.manifest.samples.decoded

    def plans(self) -> Iterator[StepPlan]:
        """Yield step after step, epoch after epoch."""
        steps = self.order.steps_per_epoch
        return (self.order.step(*divmod(number, steps)) for number in range(10**9))

    def maker(self) -> BatchMaker:
        """Return a maker of batches that uses all threads."""
        return BatchMaker(self.records, self.spec)


def measure_stages(subject: Subject, on_stage: Callable[[str], None] = lambda name: None) -> list[Stage]:
    """Measure all stages of one thread's work, in the order of the work.

    Args:
        subject: the records, the order and the images.
        on_stage: is called with the name of each stage before it is measured.

    Raises:
        CorruptDataError: a record is damaged.
    """
    stages: list[Stage] = []

    def add(name: str, measure: Callable[..., Figure | None], *known: float) -> None:
        on_stage(name)
        found = measure(subject, *known)
        if found is not None:
            stages.append(Stage(name, *found))

    add("plan", _plan)
    add("read (first time)", _first_read)
    add("read", _read)
    add("inflate", _inflate, stages[-1].microseconds)
    add("decode", _decode)
    add("resize", _resize)
    add("augment", _augment)
    return stages


Figure = tuple[float, str]


def _plan(subject: Subject) -> Figure:
    maker = subject.maker()
    return _timed(subject, lambda plan: maker.parameters(plan)), "step of the order, random windows and flips"


def _first_read(subject: Subject) -> Figure:
    """Measure the first read of each record, in wall time: waiting for storage costs no CPU."""
    begin, images, size = time.perf_counter(), 0, 0
    for plan in subject.plans():
        size += sum(len(stored) for stored in _stored(subject.records, plan.ordinals))
        images += plan.ordinals.size
        if time.perf_counter() - begin > subject.seconds or plan.step + 1 == subject.order.steps_per_epoch:
            break
    elapsed = time.perf_counter() - begin
    return elapsed / images * 1e6, f"{size / elapsed / 1e6:,.0f} MB/s, one read at a time"


def _read(subject: Subject) -> Figure:
    """Measure reading with checks and parsing; for gzip shards only reading the stored bytes."""
    plan = subject.order.step(0, 0)
    records = subject.records
    inflates = records.split.container() == "gzip"

    def read() -> None:
        for part in _parts(plan):
            list(_stored(records, part)) if inflates else records.read_images(part)

    size = records.table.length_bytes[plan.ordinals].mean() / 1024
    checked = "" if inflates else " and checked"
    return _repeat(subject, read, plan.ordinals.size), f"{size:,.1f} KiB a record, cached{checked}"


def _inflate(subject: Subject, reading: float) -> Figure | None:
    """Measure what inflating and checking adds to ``reading`` (microseconds) the stored bytes."""
    if subject.records.split.container() != "gzip":
        return None
    plan = subject.order.step(0, 0)

    def whole() -> None:
        for part in _parts(plan):
            subject.records.read_images(part)

    took = _repeat(subject, whole, plan.ordinals.size) - reading
    return max(took, 0.0), "inflated and checked"


def _decode(subject: Subject) -> Figure:
    plan, images, windows = _first_batch(subject)
    encoding, decoding = subject.records.image_encoding, subject.spec.data.decoding

    def decode() -> None:
        for stored, window in zip(images, windows, strict=True):
            cut_window(
                stored.image, encoding, stored.shape, window, subject.image_size, subject.decoded, decoding
            )

    table = subject.records.table
    sides = np.minimum(table.height[plan.ordinals], table.width[plan.ordinals])
    return _repeat(subject, decode, len(images)), f"{encoding}, short side {np.median(sides):,.0f}"


def _resize(subject: Subject) -> Figure:
    _, images, windows = _first_batch(subject)
    encoding, decoding = subject.records.image_encoding, subject.spec.data.decoding
    cut = [
        cut_window(
            stored.image, encoding, stored.shape, window, subject.image_size, subject.decoded, decoding
        )
        for stored, window in zip(images, windows, strict=True)
    ]
    out = np.empty((subject.image_size, subject.image_size, subject.decoded.channels), subject.decoded.dtype)

    def resize() -> None:
        for each in cut:
            resize_into(each, out)

    return _repeat(subject, resize, len(cut)), f"to {subject.image_size}"


def _augment(subject: Subject) -> Figure | None:
    if subject.spec.augment is None:
        return None
    plan = subject.order.step(0, 0)
    maker = subject.maker()
    parameters = maker.parameters(plan)
    images = maker.make(plan).images.copy()
    maker.close()

    def augment() -> None:
        for row, image in enumerate(images):
            augment_image(image, parameters, row)

    return _repeat(subject, augment, len(images)), "flips, colour jitter, erasing"


def _first_batch(subject: Subject) -> tuple[StepPlan, list[EncodedImage], list[Any]]:
    """Return the first step, its images in memory, and their windows."""
    plan = subject.order.step(0, 0)
    images = [EncodedImage(record.image, record.shape) for record in subject.records.read_many(plan.ordinals)]
    return plan, images, subject.maker().parameters(plan).windows.tolist()


def _parts(plan: StepPlan) -> Iterator[npt.NDArray[np.int64]]:
    starts = range(0, plan.ordinals.size, _AT_A_TIME)
    return (plan.ordinals[start : start + _AT_A_TIME] for start in starts)


def _stored(records: ShardReader, ordinals: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """Read the stored bytes of records from their shards."""
    return (records.stored.read(ordinal) for ordinal in ordinals.tolist())


def _timed(subject: Subject, work: Callable[[StepPlan], object]) -> float:
    """Return the microseconds an image of ``work``, done for step after step."""
    begin, images = time.perf_counter(), 0
    for plan in subject.plans():
        work(plan)
        images += plan.ordinals.size
        if time.perf_counter() - begin > subject.seconds:
            break
    return (time.perf_counter() - begin) / images * 1e6


def _repeat(subject: Subject, work: Callable[[], object], num_images: int) -> float:
    """Return the microseconds an image of the fastest repeat, the least disturbed one."""
    begin, best = time.perf_counter(), float("inf")
    while best == float("inf") or time.perf_counter() - begin < subject.seconds:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best / num_images * 1e6
