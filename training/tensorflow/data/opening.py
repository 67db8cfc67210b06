"""Open the ``tf.data`` pipeline of a split, indexed or streaming."""

from __future__ import annotations

import numpy as np

from shardmill.infra.errors import ShardmillError
from shardmill.training.arrays import Floats
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.order import LastBatch
from shardmill.training.reading import RecordReader
from shardmill.training.reading.budget import RamBudget, shuffle_bytes, shuffle_examples
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.opening import Opened
from shardmill.training.reading.streaming_plan import StreamPlan
from shardmill.training.tensorflow.data.augmented_batches import AugmentedBatches, WithBatchParameters
from shardmill.training.tensorflow.data.indexed import IndexedPipeline
from shardmill.training.tensorflow.data.pipeline import Pipeline
from shardmill.training.tensorflow.data.streaming import StreamingPipeline
from shardmill.training.tensorflow.data.streaming_sources import RecordSource, RunSource, TFRecordSource

# Bytes of one request to an object store: large enough to hide latency, and small beside a batch.
_RUN_BYTES = 2 << 20


def open_pipeline(opened: Opened, *, threads: int | None = None, num_classes: int | None = None) -> Pipeline:
    """Open the pipeline of a split. What augments whole batches is applied here, or left to the device.

    Args:
        opened: the examples; a stream keeps only the number of steps of their order.
        threads: threads that decode in an exact order; None: one for each processor.
        num_classes: the length of the labels of mixed examples, for a training loop outside this project;
            None: batches have the parameters with which the training step augments them.

    Raises:
        ConfigError: the settings contradict each other, or need more memory than they allow.
    """
    spec, order = opened.spec, opened.order
    if opened.choice.mode == "streaming":
        plan = stream_plan(
            opened.records, order.global_batch_size, last_batch=spec.data.last_batch, seed=order.seed
        )
        pipeline: Pipeline = open_stream(
            opened.records,
            plan,
            spec,
            cache_bytes=opened.cache.memory_bytes,
            class_weights=order.class_weights,
        )
    else:
        budget = opened.budget() if spec.training and spec.image_size is not None else None
        pipeline = IndexedPipeline(opened.records, order, spec, budget, opened.rows, threads)
    if spec.augment is None or not spec.augment.of_batches:
        return pipeline
    return WithBatchParameters(pipeline) if num_classes is None else AugmentedBatches(pipeline, num_classes)


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
    spec: ExampleSpec,
    *,
    shuffled: bool = True,
    cache_bytes: int = 0,
    class_weights: Floats | None = None,
) -> StreamingPipeline:
    """Open the streaming pipeline of one worker.

    Args:
        reader: the records of the split, perhaps through a cache.
        plan: the shards and steps of the worker (``stream_plan``).
        spec: what batches hold.
        shuffled: shuffle through a buffer, instead of stored order.
        cache_bytes: the memory of the reader's cache.
        class_weights: float64 [C], weights of the classes in the loss; only for one worker.

    Raises:
        ConfigError: buffer, cache and batches do not fit ``reading.ram_budget_bytes``.
    """
    reader.split.check_one_encoding("a stream of whole images")
    stored, decoded = _mean_bytes(reader)
    examples = _shuffle_buffer(plan, spec.reading, stored, decoded) if shuffled else 0
    is_decoded = reader.image_encoding != reader.split.image_encoding  # a cache holds decoded images
    held, size = decoded if is_decoded else stored, spec.image_size
    budget = RamBudget(spec.reading.ram_budget_bytes, shuffle_bytes(examples, held), cache_bytes)
    budget.check(int(plan.num_rows * (size * size * 3 if size else decoded)))
    pipeline = StreamingPipeline(reader, plan, spec, examples, budget, class_weights)
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
    if not reader.reads_single_records or len(local) < len(files) or not version.is_whole:
        return RunSource(reader, on_failure, _RUN_BYTES)
    return TFRecordSource(reader, local, version.manifest.container, on_failure)


def _mean_bytes(reader: RecordReader) -> tuple[float, float]:
    """Return the mean size of an example (bytes): stored, and decoded."""
    table = reader.table
    version = reader.split.version
    if version.is_whole:
        stored = sum(shard.payload_bytes for shard in version.shards(table.split)) / len(table)
    else:
        stored = float(np.mean(table.length_bytes))
    return stored, float(np.mean(table.height.astype(np.int64) * table.width)) * 3
