"""Interfaces: evaluate a model on a split with any framework, and take its predictions. No TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from shardmill.training.arrays import Ints
from shardmill.training.reading import RecordReader
from shardmill.training.results.metrics.tally import Evaluation, Rows
from shardmill.training.results.predictions.columns import PredictionColumns


class Sink(Protocol):
    """Takes each evaluated batch, for example to write it to a file."""

    def add(self, ordinals: Ints, labels: Any, rows: Rows) -> None:
        """Take n examples.

        Args:
            ordinals: int64 [n], the records in the table of the split.
            labels: as the task needs them: an array [n, ...], or several by name.
            rows: ``losses`` float32 [n] and the predictions of the task, each [n, ...].
        """


class SplitEvaluator(Protocol):
    """Evaluates one model on splits."""

    @property
    def columns(self) -> PredictionColumns:
        """The columns of a file of its predictions."""

    def evaluate(
        self,
        reader: RecordReader,
        on_batch: Callable[[int], None],
        sink: Sink | None = None,
        records: Ints | None = None,
    ) -> Evaluation:
        """Evaluate every record of the reader's split once, in stored order.

        Args:
            reader: the records of the split.
            on_batch: called with the number of evaluated examples.
            sink: takes the predictions of each batch.
            records: int64 [M], ordinals of the only records to evaluate, ascending; None: all.

        Raises:
            CorruptDataError: a record is damaged.
        """
