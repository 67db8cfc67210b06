"""Open the input of a training run: choose mode, cache and memory, and say why. Imports TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from shardmill.infra.errors import ConfigError
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.config.data import DataSettings
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.order import Order
from shardmill.training.reading import RecordReader
from shardmill.training.reading.budget import RamBudget
from shardmill.training.reading.cache import CachePlan, describe
from shardmill.training.reading.mode import ModeChoice, choose_mode
from shardmill.training.reading.opening import open_for_order
from shardmill.training.reading.records.objects import SplitObjects
from shardmill.training.tensorflow.data.augmented_batches import WithBatchParameters
from shardmill.training.tensorflow.data.indexed import IndexedPipeline
from shardmill.training.tensorflow.data.pipeline import Pipeline
from shardmill.training.tensorflow.data.streaming.opening import open_stream, stream_plan
from shardmill.training.tensorflow.data.streaming.pipeline import StreamingPipeline


@dataclass(frozen=True, slots=True)
class TrainingInput:
    """The pipeline of a run, and how it was chosen.

    Attributes:
        pipeline: the batches of the train split.
        choice: the mode of the pipeline, with the reason.
        cache: the plan of the cache.
    """

    pipeline: Pipeline
    choice: ModeChoice
    cache: CachePlan

    def described(self) -> dict[str, Any]:
        """Describe the input for the result of the run, JSON-able."""
        return {"mode": self.choice.mode, "reason": self.choice.reason, "cache": describe(self.cache)}

    def __str__(self) -> str:
        kept = f", {self.cache.form} images cached ({self.cache.place})" if self.cache.place != "none" else ""
        return f"{self.choice.mode}, as {self.choice.reason}{kept}"


@dataclass(frozen=True, slots=True)
class InputSettings:
    """How a training split is read.

    Attributes:
        data, reading, augment: the settings of order, reading and augmentation; without the latter examples
            are not augmented.
        objects: the objects in the images, which are the labels then; None: the labels of the split.
        threads: threads that decode in an exact order; None: one for each processor.
    """

    data: DataSettings
    reading: ReadingSettings
    augment: AugmentSettings | None
    objects: SplitObjects | None = None
    threads: int | None = None


def open_training_input(
    settings: InputSettings, source: RecordReader, order: Order, image_size: int, rows: slice | None = None
) -> TrainingInput:
    """Like ``open_images``; each batch also has the parameters of its augmentation on the device."""
    opened = open_images(settings, source, order, image_size, rows)
    if settings.augment is None or not settings.augment.of_batches:
        return opened
    return replace(opened, pipeline=WithBatchParameters(opened.pipeline, settings.augment))


def open_images(
    settings: InputSettings, source: RecordReader, order: Order, image_size: int, rows: slice | None = None
) -> TrainingInput:
    """Open the pipeline that the settings ask for, with images augmented one by one.

    Args:
        settings: the settings, and the objects.
        source: the records of the split.
        order: the order of the run; a stream keeps only its number of steps.
        image_size: height and width of the images (pixels).
        rows: the rows of each global batch that this rank reads; None: all.

    Raises:
        ConfigError: the settings contradict each other, or need more memory than they allow.
    """
    data, reading = settings.data, settings.reading
    choice = choose_mode(source.split.version, reading, data)
    if rows is not None and choice.mode == "streaming":
        raise ConfigError(
            f"several ranks need an exact order, and the shards are streamed ({choice.reason})",
            "set reading.staging_dir, or reading.mode to indexed",
        )
    if settings.objects is not None and settings.augment is not None:
        settings.augment.check_objects_follow()
    reader, cache = open_for_order(source, order, reading)
    pipeline: Pipeline
    if choice.mode == "indexed":
        pipeline = replace(_indexed(settings, reader, order, image_size, cache), own_rows=rows)
    else:
        pipeline = _streaming(settings, reader, order, image_size, cache)
    return TrainingInput(pipeline, choice, cache)


def _indexed(
    settings: InputSettings, reader: RecordReader, order: Order, image_size: int, cache: CachePlan
) -> IndexedPipeline:
    reading = settings.reading
    budget = RamBudget(reading.ram_budget_bytes, cache=cache.memory_bytes, windows=reader.windows.num_bytes)
    budget.check(order.global_batch_size * image_size * image_size * 3)
    channels = settings.data.image_channels
    return IndexedPipeline(
        reader,
        order,
        image_size,
        settings.augment,
        reading.decoder,
        budget,
        channels,
        objects=settings.objects,
        fit=settings.data.fit or "crop",
        threads=settings.threads,
    )


def _streaming(
    settings: InputSettings, reader: RecordReader, order: Order, image_size: int, cache: CachePlan
) -> StreamingPipeline:
    pipeline = open_stream(
        reader,
        stream_plan(reader, order.global_batch_size, last_batch=settings.data.last_batch, seed=order.seed),
        settings.reading,
        image_size=image_size,
        augment=settings.augment,
        cache_bytes=cache.memory_bytes,
        class_weights=order.class_weights,
    )
    pipeline.image_channels, pipeline.fit = settings.data.image_channels, settings.data.fit or "crop"
    return pipeline
