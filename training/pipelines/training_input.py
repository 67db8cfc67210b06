"""What a training run reads through: mode, cache and memory, decided once and said. Imports TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra import progress as events
from infra.catalog import DatasetVersion
from training.config import TrainConfig
from training.order import TrainingOrder
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


def open_training_input(
    config: TrainConfig,
    version: DatasetVersion,
    source: RecordReader,
    order: TrainingOrder,
    image_size: int,
) -> TrainingInput:
    """The pipeline that the settings ask for.

    Args:
        config: of the run.
        version: that is trained on.
        source: of the train split.
        order: of the run; a stream keeps to its number of steps only.
        image_size: of the batches (pixels).

    Raises:
        ConfigError: the settings contradict each other, or need more memory than they allow.
    """
    choice = choose_mode(version, config.reading, config.data, staged=config.reading.staging_dir is not None)
    reader, cache = _opened(config, version, source, order)
    cached_bytes = cache.num_bytes if cache.place == "memory" else 0
    pipeline: Pipeline
    if choice.mode == "indexed":
        pipeline = _indexed(config, reader, order, image_size, cached_bytes)
    else:
        pipeline = _streaming(config, version, reader, order, image_size, cached_bytes)
    if config.augment.is_batched:
        pipeline = WithBatchDraws(pipeline, config.augment, config.data.seed)
    kept = f", {cache.form} images cached ({cache.place})" if cache.place != "none" else ""
    events.log(f"reading {version.ref} train: {choice.mode}, as {choice.reason}{kept}")
    return TrainingInput(pipeline, choice, cache)


def _opened(
    config: TrainConfig, version: DatasetVersion, source: RecordReader, order: TrainingOrder
) -> tuple[RecordReader, CachePlan]:
    """The records by windows where the order is by block; a cache on disk needs none."""
    budget = config.reading.ram_budget_bytes
    if config.reading.cache == "memory":
        source = by_block(version, source, order, budget)
    reader, cache = open_cached(version, source, config.reading)
    return by_block(version, reader, order, budget) if cache.place == "none" else reader, cache


def _indexed(
    config: TrainConfig, reader: RecordReader, order: TrainingOrder, image_size: int, cached_bytes: int
) -> IndexedPipeline:
    budget = RamBudget(config.reading.ram_budget_bytes, cache=cached_bytes, windows=reader.window_bytes)
    budget.check(config.data.global_batch_size * image_size * image_size * 3)
    decoder = config.reading.decoder
    return IndexedPipeline(reader, order, image_size, config.augment, config.data.seed, decoder, budget)


def _streaming(
    config: TrainConfig,
    version: DatasetVersion,
    reader: RecordReader,
    order: TrainingOrder,
    image_size: int,
    cached_bytes: int,
) -> StreamingPipeline:
    return open_stream(
        version,
        reader,
        stream_plan(reader, config.data.global_batch_size, last_batch=config.data.last_batch),
        config.reading,
        image_size=image_size,
        augment=config.augment,
        seed=config.data.seed,
        cache_bytes=cached_bytes,
        class_weights=order.class_weights,
    )
