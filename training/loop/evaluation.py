"""Evaluate a model on a split, over all replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from training.order import SequentialOrder
from training.ranks.strategy import distribute, gather
from training.reading import RecordReader
from training.results.metrics import Evaluation, confusion_matrix
from training.tf_data.indexed import IndexedPipeline
from training.tf_data.pipeline import reraise


class Evaluator:
    """Evaluates one model on splits; the compiled step serves all of them."""

    def __init__(self, strategy: Any, model: Any, num_classes: int, image_size: int, batch_size: int) -> None:
        self._strategy = strategy
        self._num_classes = num_classes
        self._image_size = image_size
        self._batch_size = batch_size
        self._step = _evaluation_step(strategy, model)
        self._prepared: dict[RecordReader, tuple[IndexedPipeline, Any]] = {}

    def evaluate(self, reader: RecordReader, on_batch: Callable[[int], None]) -> Evaluation:
        """Evaluate every record of the reader's split once, in stored order.

        Args:
            reader: the records of the split.
            on_batch: called with the number of evaluated examples.

        Raises:
            CorruptDataError: a record is damaged.
        """
        pipeline, dataset = self._prepare(reader)
        confusion = np.zeros((self._num_classes, self._num_classes), np.int64)
        losses: list[float] = []
        batches = reraise([pipeline], lambda: iter(dataset))
        for _ in range(pipeline.order.steps_per_epoch):
            batch = reraise([pipeline], lambda: next(batches))
            rows = [gather(self._strategy, part) for part in self._step(batch)]
            real = rows[0] > 0
            _, labels, predicted, loss = (part[real] for part in rows)
            confusion += confusion_matrix(labels, predicted, self._num_classes)
            losses.append(float(loss.astype(np.float64).sum()))
            on_batch(int(confusion.sum()))
        return Evaluation(confusion, float(np.sum(losses)) / max(int(confusion.sum()), 1))

    def _prepare(self, reader: RecordReader) -> tuple[IndexedPipeline, Any]:
        """Return the pipeline of a split, made once: TensorFlow never frees the functions of a dataset."""
        if reader not in self._prepared:
            order = SequentialOrder(len(reader.table), self._batch_size)
            pipeline = IndexedPipeline(reader, order, self._image_size)
            dataset = distribute(self._strategy, pipeline, 0, order.steps_per_epoch)
            self._prepared[reader] = pipeline, dataset
        return self._prepared[reader]


def _evaluation_step(strategy: Any, model: Any) -> Any:
    """Return a function: batch -> per replica (weights, labels, predicted, losses), each [b]."""

    def on_replica(batch: Any) -> Any:
        logits = tf.cast(model(batch["images"], training=False), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits)
        return batch["weights"], batch["labels"], tf.argmax(logits, axis=-1), losses

    return tf.function(lambda batch: strategy.run(on_replica, args=(batch,)))
