"""A streaming pipeline of a split, as the settings ask for it. Imports TensorFlow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from infra.catalog import DatasetVersion
from infra.errors import ShardmillError
from training.config.augment import AugmentSettings
from training.config.reading import ReadingSettings
from training.order import LastBatch
from training.pipelines.stream_plan import StreamPlan
from training.pipelines.stream_sources import RecordSource, RunSource, TFRecordSource
from training.pipelines.streaming import StreamingPipeline
from training.reading import RecordReader
from training.reading.budget import RamBudget, shuffle_bytes, shuffle_examples
from training.reading.cache import CachedReader

# One request to an object store: long enough that latency counts little, and little memory beside a batch.
_RUN_BYTES = 2 << 20


def stream_plan(
    reader: RecordReader,
    global_batch_size: int,
    *,
    last_batch: LastBatch = "pad",
    worker: int = 0,
    num_workers: int = 1,
) -> StreamPlan:
    """Shards and steps of one worker of a split."""
    sizes = tuple(reader.table.shard_sizes.tolist())
    return StreamPlan(sizes, global_batch_size, last_batch, worker, num_workers)


def open_stream(
    version: DatasetVersion,
    reader: RecordReader,
    plan: StreamPlan,
    reading: ReadingSettings,
    *,
    image_size: int | None,
    augment: AugmentSettings | None = None,
    seed: int = 0,
    shuffled: bool = True,
    cache_bytes: int = 0,
    class_weights: npt.NDArray[np.float64] | None = None,
) -> StreamingPipeline:
    """The pipeline of one worker.

    Args:
        version: that the records are of.
        reader: of the split, perhaps through a cache.
        plan: of the worker (``stream_plan``).
        reading: the settings.
        image_size: of the batches (pixels); None: whole images, padded.
        augment: how training examples are varied; None for evaluation.
        seed: of order and augmentation.
        shuffled: through a buffer, or in stored order.
        cache_bytes: that the reader keeps in memory.
        class_weights: float64 [C], of the classes in the loss; only for one worker.

    Raises:
        ConfigError: buffer, cache and batches do not fit ``reading.ram_budget_bytes``.
    """
    stored, decoded = _mean_bytes(version, reader)
    examples = _shuffle_buffer(plan, reading, stored, decoded) if shuffled else 0
    held = decoded if isinstance(reader, CachedReader) and reader.image_encoding == "raw" else stored
    budget = RamBudget(reading.ram_budget_bytes, shuffle_bytes(examples, held), cache_bytes)
    budget.check(int(plan.num_rows * (image_size * image_size * 3 if image_size else decoded)))
    pipeline = StreamingPipeline(
        reader, plan, image_size, augment, seed, examples, reading.parallel_shards, budget, class_weights
    )
    pipeline.source = _source(version, reader, pipeline)
    return pipeline


def _shuffle_buffer(plan: StreamPlan, reading: ReadingSettings, stored: float, decoded: float) -> int:
    """Examples, by what is asked for and not by what fits: the order must not depend on the machine."""
    mean = decoded if reading.cache != "none" and reading.cache_form == "decoded" else stored
    return min(shuffle_examples(reading.shuffle_buffer, reading.ram_budget_bytes, mean), plan.own_records)


def _source(version: DatasetVersion, reader: RecordReader, pipeline: StreamingPipeline) -> RecordSource:
    """TensorFlow's own reader for files of this machine; ours for all else."""

    def on_failure(error: ShardmillError) -> None:
        pipeline.failure = pipeline.failure or error

    files = [version.storage.local_path(path) for path in reader.table.paths]
    local = [file for file in files if file is not None]
    if isinstance(reader, CachedReader) or len(local) < len(files):
        return RunSource(reader, on_failure, _RUN_BYTES)
    return TFRecordSource(reader, local, version.manifest.container, on_failure)


def _mean_bytes(version: DatasetVersion, reader: RecordReader) -> tuple[float, float]:
    """Of an example as it is stored, and decoded."""
    table = reader.table
    stored = sum(shard.payload_bytes for shard in version.shards(table.split)) / len(table)
    return stored, float(np.mean(table.height.astype(np.int64) * table.width)) * 3
