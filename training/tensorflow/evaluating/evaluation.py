"""Evaluate a model on a split, over all replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import tensorflow as tf

from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.models.spec import Fit
from shardmill.training.order import SequentialOrder, rank_slice
from shardmill.training.reading import RecordReader
from shardmill.training.results.metrics.tally import Evaluation, Rows
from shardmill.training.run.evaluating.interface import Sink
from shardmill.training.tasks.annotations import objects_of
from shardmill.training.tasks.task import Task, evaluated
from shardmill.training.tensorflow.data.indexed import IndexedPipeline
from shardmill.training.tensorflow.data.pipeline import reraise
from shardmill.training.tensorflow.models.outputs import in_float32
from shardmill.training.tensorflow.ranks.group import group_of
from shardmill.training.tensorflow.ranks.strategy import distribute, gather


@dataclass(frozen=True, slots=True)
class EvaluationSize:
    """The size of the batches that are evaluated.

    Attributes:
        image_size: height and width of the images (pixels).
        batch_size: examples a step, over all replicas.
        image_channels: 3, or 1 for grey images.
        fit: what is seen of images that are not square.
    """

    image_size: int
    batch_size: int
    image_channels: int = 3
    fit: Fit = "crop"

    @classmethod
    def of(cls, config: TrainConfig) -> Self:
        """Return the size of the batches of a run."""
        data = config.data
        return cls(image_size_of(config), data.batch_size, data.image_channels, data.fit or "crop")


class Evaluator:
    """Evaluates one model on splits; the compiled step serves all of them. A ``SplitEvaluator``."""

    def __init__(self, strategy: Any, model: Any, task: Task, size: EvaluationSize) -> None:
        self._strategy = strategy
        self._task = task
        self.columns = task.columns()
        self._size = size
        ranks = group_of(strategy)
        self._threads = ranks.threads
        self._own_rows = rank_slice(size.batch_size, ranks.rank, ranks.num_ranks)
        self._step = _evaluation_step(strategy, model, task)
        self._prepared: dict[RecordReader, tuple[IndexedPipeline, Any]] = {}

    def evaluate(
        self,
        reader: RecordReader,
        on_batch: Callable[[int], None],
        sink: Sink | None = None,
        records: Ints | None = None,
    ) -> Evaluation:
        """Evaluate the records of the reader's split once, in stored order; see ``SplitEvaluator``."""
        pipeline, dataset = self._prepare(reader) if records is None else self._opened(reader, records)
        tally = self._task.tally()
        batches = reraise([pipeline], lambda: iter(dataset))
        done = 0
        for _ in range(pipeline.order.steps_per_epoch):
            batch = reraise([pipeline], lambda: next(batches))
            ordinals, labels, rows = self._evaluated(batch, pipeline)
            tally.add(labels, rows)
            if sink is not None:
                sink.add(ordinals, labels, rows)
            done += ordinals.size
            on_batch(done)
        return tally.evaluation()

    def _evaluated(self, batch: Any, pipeline: IndexedPipeline) -> tuple[Ints, Any, Rows]:
        """Return ordinals, labels and predictions of the real examples of a batch."""
        rows = self._step(batch)
        real = gather(self._strategy, batch["weights"], pipeline) > 0

        def of_real(parts: Any) -> Any:
            if isinstance(parts, dict):
                return {name: of_real(part) for name, part in parts.items()}
            return gather(self._strategy, parts, pipeline)[real]

        return of_real(batch["ordinals"]), of_real(batch["labels"]), of_real(rows)

    def _prepare(self, reader: RecordReader) -> tuple[IndexedPipeline, Any]:
        """Return the pipeline of a split, made once: TensorFlow never frees the functions of a dataset."""
        if reader not in self._prepared:
            self._prepared[reader] = self._opened(reader, None)
        return self._prepared[reader]

    def _opened(self, reader: RecordReader, records: Ints | None) -> tuple[IndexedPipeline, Any]:
        order = SequentialOrder(len(reader.table), self._size.batch_size, records=records)
        pipeline = IndexedPipeline(
            reader,
            order,
            self._size.image_size,
            image_channels=self._size.image_channels,
            own_rows=self._own_rows,
            threads=self._threads,
            objects=objects_of(self._task, reader),
            fit=self._size.fit,
        )
        return pipeline, distribute(self._strategy, pipeline, 0, order.steps_per_epoch)


def _evaluation_step(strategy: Any, model: Any, task: Task) -> Any:
    """Return a function: batch -> per replica the losses and predictions of its rows, by name."""

    def on_replica(batch: Any) -> Any:
        outputs = in_float32(model(batch["images"], training=False))
        return dict(evaluated(task, outputs, batch["labels"]))

    return tf.function(lambda batch: strategy.run(on_replica, args=(batch,)), autograph=False)
