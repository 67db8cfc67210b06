"""What a training run reads through: mode, cache and memory, decided once and said. Imports TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from infra.catalog import DatasetVersion
from training.config.augment import AugmentSettings
from training.config.data import DataSettings
from training.config.reading import ReadingSettings
from training.order import Order
from training.pipelines.auto import ModeChoice, choose_mode
from training.pipelines.batch_draws import WithBatchDraws
from training.pipelines.indexed import IndexedPipeline
from training.pipelines.open_stream import open_stream, stream_plan
from training.pipelines.pipeline import Pipeline
from training.pipelines.streaming import StreamingPipeline
from training.reading import RecordReader
from training.reading.block_reader import by_block
from training.reading.budget import RamBudget
from training.reading.cache import CachePlan, describe, open_cached


@dataclass(frozen=True, slots=True)
class TrainingInput:
    """The pipeline of a run, and how it came to be.

    Attributes:
        pipeline: of the train split.
        choice: its mode.
        cache: what is kept between epochs.
    """

    pipeline: Pipeline
    choice: ModeChoice
    cache: CachePlan

    def described(self) -> dict[str, Any]:
        """For the result of the run, JSON-able."""
        return {"mode": self.choice.mode, "reason": self.choice.reason, "cache": describe(self.cache)}

    def __str__(self) -> str:
        kept = f", {self.cache.form} images cached ({self.cache.place})" if self.cache.place != "none" else ""
        return f"{self.choice.mode}, as {self.choice.reason}{kept}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: the settings of the order, of reading, and of augmentation."""

    data: DataSettings
    reading: ReadingSettings
    augment: AugmentSettings


def open_training_input(
    wanted: Wanted, version: DatasetVersion, source: RecordReader, order: Order, image_size: int
) -> TrainingInput:
    """As ``open_images``, with the draws of what is done to whole batches on the device."""
    opened = open_images(wanted, version, source, order, image_size)
    if not wanted.augment.is_batched:
        return opened
    return replace(opened, pipeline=WithBatchDraws(opened.pipeline, wanted.augment, wanted.data.seed))


def open_images(
    wanted: Wanted, version: DatasetVersion, source: RecordReader, order: Order, image_size: int
) -> TrainingInput:
    """The pipeline that the settings ask for, of images varied one by one.

    Args:
        wanted: the settings.
        version: that is trained on.
        source: of the split.
        order: of the run; a stream keeps to its number of steps only.
        image_size: of the batches (pixels).

    Raises:
        ConfigError: the settings contradict each other, or need more memory than they allow.
    """
    data, reading = wanted.data, wanted.reading
    choice = choose_mode(version, reading, data)
    reader, cache = _opened(reading, version, source, order)
    cached_bytes = cache.num_bytes if cache.place == "memory" else 0
    pipeline: Pipeline
    if choice.mode == "indexed":
        pipeline = _indexed(wanted, reader, order, image_size, cached_bytes)
    else:
        pipeline = _streaming(wanted, version, reader, order, image_size, cached_bytes)
    return TrainingInput(pipeline, choice, cache)


def _opened(
    reading: ReadingSettings, version: DatasetVersion, source: RecordReader, order: Order
) -> tuple[RecordReader, CachePlan]:
    """The records by windows where the order is by block; a cache on disk needs none."""
    budget = reading.ram_budget_bytes
    if reading.cache == "memory":
        source = by_block(version, source, order, budget)
    reader, cache = open_cached(version, source, reading)
    return by_block(version, reader, order, budget) if cache.place == "none" else reader, cache


def _indexed(
    wanted: Wanted, reader: RecordReader, order: Order, image_size: int, cached_bytes: int
) -> IndexedPipeline:
    reading = wanted.reading
    budget = RamBudget(reading.ram_budget_bytes, cache=cached_bytes, windows=reader.window_bytes)
    budget.check(order.global_batch_size * image_size * image_size * 3)
    return IndexedPipeline(
        reader, order, image_size, wanted.augment, wanted.data.seed, reading.decoder, budget
    )


def _streaming(
    wanted: Wanted,
    version: DatasetVersion,
    reader: RecordReader,
    order: Order,
    image_size: int,
    cached_bytes: int,
) -> StreamingPipeline:
    return open_stream(
        version,
        reader,
        stream_plan(reader, order.global_batch_size, last_batch=wanted.data.last_batch),
        wanted.reading,
        image_size=image_size,
        augment=wanted.augment,
        seed=wanted.data.seed,
        cache_bytes=cached_bytes,
        class_weights=order.class_weights,
    )
