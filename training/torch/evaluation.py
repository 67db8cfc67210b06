"""Evaluate a model on a split, each rank its rows of every batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy.typing as npt
import torch

from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.evaluation import Rows
from shardmill.training.order import SequentialOrder
from shardmill.training.reading import BatchMaker, RecordReader
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.opening import open_for_order
from shardmill.training.run.framework import Evaluator
from shardmill.training.torch.parts import TrainingParts
from shardmill.training.torch.reading import Batches
from shardmill.training.torch.step import pixels


class TorchEvaluator(Evaluator):
    """Evaluates the model of a run on splits."""

    def __init__(self, config: TrainConfig, parts: TrainingParts) -> None:
        self._spec = ExampleSpec.of_settings(config).evaluated
        self._parts = parts
        self.task = parts.task
        self._opened: dict[RecordReader, Batches] = {}

    def predicted(self, reader: RecordReader, records: Ints | None) -> Iterator[tuple[Ints, Any, Rows]]:
        """Yield the real examples of all ranks, batch by batch; see ``Evaluator``."""
        batches = self._batches(reader) if records is None else self._open(reader, records)
        ranks, size = self._parts.ranks, self._spec.data.batch_size
        self._parts.model.eval()
        for batch in batches.steps(0, batches.order.steps_per_epoch):
            columns = {"weights": batch.weights, "ordinals": batch.ordinals, "labels": batch.labels}
            columns |= self._rows(batch)
            arrays = {name: column.cpu().numpy() for name, column in columns.items()}
            whole = {name: ranks.gather_rows(array, batches.rows, size) for name, array in arrays.items()}
            real = whole.pop("weights") > 0
            rows: dict[str, npt.NDArray[Any]] = {name: array[real] for name, array in whole.items()}
            yield rows.pop("ordinals"), rows.pop("labels"), rows

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _rows(self, batch: Any) -> dict[str, Any]:
        with self._parts.autocast():
            outputs = self._parts.model(pixels(batch.images)).float()
        return self.task.evaluated(outputs, batch.labels)

    def maker(self, reader: RecordReader) -> BatchMaker:
        """Return what makes the batches of a split."""
        return self._batches(reader).maker

    def _batches(self, reader: RecordReader) -> Batches:
        """Return the batches of a split, whose threads serve all its evaluations."""
        if reader not in self._opened:
            self._opened[reader] = self._open(reader, None)
        return self._opened[reader]

    def _open(self, reader: RecordReader, records: Ints | None) -> Batches:
        order = SequentialOrder(len(reader.table), self._spec.data.batch_size, records=records)
        spec = replace(self._spec, objects=self.task.objects(reader))
        opened = open_for_order(reader, order, spec)
        return Batches(opened, self._parts.ranks, self._parts.device)
