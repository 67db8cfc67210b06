"""Evaluate a model on a split, over all replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import tensorflow as tf

from shardmill.training.arrays import Ints
from shardmill.training.metrics.evaluation import Rows
from shardmill.training.order import SequentialOrder, rank_slice
from shardmill.training.reading import RecordReader
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.run.framework import Evaluator
from shardmill.training.tasks.task import Task
from shardmill.training.tensorflow.data.indexed import IndexedPipeline
from shardmill.training.tensorflow.data.pipeline import reraise
from shardmill.training.tensorflow.models.layers import in_float32
from shardmill.training.tensorflow.ranks.group import group_of
from shardmill.training.tensorflow.ranks.strategy import distribute, gather


class KerasEvaluator(Evaluator):
    """Evaluates one model on splits; the compiled step serves all of them."""

    def __init__(self, strategy: Any, model: Any, task: Task, spec: ExampleSpec) -> None:
        """Evaluate a Keras model on examples as ``spec`` says."""
        self._strategy = strategy
        self.task = task
        self._spec, self._batch_size = spec, spec.data.batch_size
        ranks = group_of(strategy)
        self._threads = ranks.threads
        self._own_rows = rank_slice(self._batch_size, ranks.rank, ranks.num_ranks)
        self._step = _evaluation_step(strategy, model, task)
        self._prepared: dict[RecordReader, tuple[IndexedPipeline, Any]] = {}

    def predicted(self, reader: RecordReader, records: Ints | None) -> Iterator[tuple[Ints, Any, Rows]]:
        """Yield the real examples of all ranks, batch by batch; see ``Evaluator``."""
        pipeline, dataset = self._prepare(reader) if records is None else self._opened(reader, records)
        batches = reraise([pipeline], lambda: iter(dataset))
        for _ in range(pipeline.order.steps_per_epoch):
            yield self._real_examples(reraise([pipeline], lambda: next(batches)), pipeline)

    def _real_examples(self, batch: Any, pipeline: IndexedPipeline) -> tuple[Ints, Any, Rows]:
        """Return ordinals, labels and predictions of the real examples of a batch."""
        rows = self._step(batch)
        of_ranks = partial(
            gather, self._strategy, own=pipeline.rows, num_rows=pipeline.order.global_batch_size
        )
        real = of_ranks(batch["weights"]) > 0

        def of_real(parts: Any) -> Any:
            if isinstance(parts, dict):
                return {name: of_real(part) for name, part in parts.items()}
            return of_ranks(parts)[real]

        return of_real(batch["ordinals"]), of_real(batch["labels"]), of_real(rows)

    def _prepare(self, reader: RecordReader) -> tuple[IndexedPipeline, Any]:
        """Return the pipeline of a split, made once: TensorFlow never frees the functions of a dataset."""
        if reader not in self._prepared:
            self._prepared[reader] = self._opened(reader, None)
        return self._prepared[reader]

    def _opened(self, reader: RecordReader, records: Ints | None) -> tuple[IndexedPipeline, Any]:
        order = SequentialOrder(len(reader.table), self._batch_size, records=records)
        spec = replace(self._spec, objects=self.task.objects(reader))
        pipeline = IndexedPipeline(reader, order, spec, rows=self._own_rows, threads=self._threads)
        return pipeline, distribute(self._strategy, pipeline, 0, order.steps_per_epoch)


def _evaluation_step(strategy: Any, model: Any, task: Task) -> Any:
    """Return a function: batch -> per replica the losses and predictions of its rows, by name."""

    def on_replica(batch: Any) -> Any:
        outputs = in_float32(model(batch["images"], training=False))
        return task.evaluated(outputs, batch["labels"])

    return tf.function(lambda batch: strategy.run(on_replica, args=(batch,)), autograph=False)
