"""Open a streaming pipeline of a split. Imports TensorFlow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import ShardmillError
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.order import LastBatch
from shardmill.training.reading import RecordReader
from shardmill.training.reading.budget import RamBudget, shuffle_bytes, shuffle_examples
from shardmill.training.reading.streaming_plan import StreamPlan
from shardmill.training.tensorflow.data.streaming.pipeline import StreamingPipeline
from shardmill.training.tensorflow.data.streaming.sources import RecordSource, RunSource, TFRecordSource

# Bytes of one request to an object store: large enough to hide latency, and small beside a batch.
_RUN_BYTES = 2 << 20


def stream_plan(
    reader: RecordReader,
    global_batch_size: int,
    *,
    last_batch: LastBatch = "pad",
    worker: int = 0,
    num_workers: int = 1,
    seed: int = 0,
) -> StreamPlan:
    """Return the shards and steps of one worker of a split."""
    sizes = tuple(reader.table.shard_sizes.tolist())
    return StreamPlan(sizes, global_batch_size, last_batch, worker, num_workers, seed)


def open_stream(
    reader: RecordReader,
    plan: StreamPlan,
    reading: ReadingSettings,
    *,
    image_size: int | None,
    augment: AugmentSettings | None = None,
    shuffled: bool = True,
    cache_bytes: int = 0,
    class_weights: npt.NDArray[np.float64] | None = None,
) -> StreamingPipeline:
    """Open the pipeline of one worker.

    Args:
        reader: the records of the split, perhaps through a cache.
        plan: the shards and steps of the worker (``stream_plan``).
        reading: the settings of reading.
        image_size: height and width of the images (pixels); None: whole images, padded.
        augment: how training examples are augmented; None for evaluation.
        shuffled: shuffle through a buffer, instead of stored order.
        cache_bytes: the memory of the reader's cache.
        class_weights: float64 [C], weights of the classes in the loss; only for one worker.

    Raises:
        ConfigError: buffer, cache and batches do not fit ``reading.ram_budget_bytes``.
    """
    stored, decoded = _mean_bytes(reader)
    examples = _shuffle_buffer(plan, reading, stored, decoded) if shuffled else 0
    is_decoded = reader.image_encoding != reader.split.image_encoding  # a cache holds decoded images
    held = decoded if is_decoded else stored
    budget = RamBudget(reading.ram_budget_bytes, shuffle_bytes(examples, held), cache_bytes)
    budget.check(int(plan.num_rows * (image_size * image_size * 3 if image_size else decoded)))
    pipeline = StreamingPipeline(
        reader, plan, image_size, augment, examples, reading.parallel_shards, budget, class_weights
    )
    pipeline.source = _source(reader, pipeline)
    return pipeline


def _shuffle_buffer(plan: StreamPlan, reading: ReadingSettings, stored: float, decoded: float) -> int:
    """Return the examples of the buffer. They depend on the settings alone, never on the machine."""
    mean = decoded if reading.cache != "none" and reading.cache_form == "decoded" else stored
    return min(shuffle_examples(reading.shuffle_buffer, reading.ram_budget_bytes, mean), plan.own_records)


def _source(reader: RecordReader, pipeline: StreamingPipeline) -> RecordSource:
    """Choose TensorFlow's own reader for local files, and runs through ``reader`` otherwise."""

    def on_failure(error: ShardmillError) -> None:
        pipeline.failure = pipeline.failure or error

    version = reader.split.version
    files = [version.storage.local_path(path) for path in reader.table.paths]
    local = [file for file in files if file is not None]
    if not reader.reads_single_records or len(local) < len(files) or version.view is not None:
        return RunSource(reader, on_failure, _RUN_BYTES)
    return TFRecordSource(reader, local, version.manifest.container, on_failure)


def _mean_bytes(reader: RecordReader) -> tuple[float, float]:
    """Return the mean size of an example (bytes): stored, and decoded."""
    table = reader.table
    version = reader.split.version
    if version.view is None:
        stored = sum(shard.payload_bytes for shard in version.shards(table.split)) / len(table)
    else:
        stored = float(np.mean(table.length_bytes))
    return stored, float(np.mean(table.height.astype(np.int64) * table.width)) * 3
