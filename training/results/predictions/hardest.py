"""The examples of a split with the highest losses."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shardmill.training.results.predictions.file import (
    DATA_SET,
    data_set_in,
    kind_in,
    placed,
    read_classes,
    read_predictions,
)
from shardmill.training.tasks.annotated import Annotation


class HardExample(NamedTuple):
    """An example that the model got wrong by far.

    Attributes:
        loss: name of the loss of the task.
        id, source_uri: of the record.
        label, predicted: names of classes, or numbers with the names of their targets.
        annotation: boxes or masks that are drawn; None: there are none.
        label_probability, predicted_probability: what the model gives two single classes; None: they are not
            single classes.
        data_set: the reference of one of several; empty: there is one.
    """

    loss: float
    id: str
    source_uri: str
    label: str
    predicted: str
    label_probability: float | None = None
    predicted_probability: float | None = None
    annotation: Annotation | None = None
    data_set: str = ""

    @property
    def place(self) -> str:
        """Its URI, behind its data set where there are several."""
        return placed(self.data_set, self.source_uri)


def find_hardest(path: Path, num_examples: int, *, is_whole: bool = True) -> list[HardExample]:
    """Return the examples of the highest losses in a file of predictions, the hardest first.

    Examples that were predicted rightly are never hard. Memory holds one part of the file.

    Args:
        path: the file.
        num_examples: at most so many.
        is_whole: the model sees whole images, not their central squares.
    """
    kind, names = kind_in(path), read_classes(path)
    kept: list[HardExample] = []
    for table in read_predictions(path, ["id", "source_uri", DATA_SET, "loss", *kind.fields]):
        labels, rows = kind.read(names, table)
        losses = np.where(kind.wrong(labels, rows), rows["losses"], -np.inf)
        hardest = np.argsort(-losses, kind="stable")[:num_examples]
        for row in hardest[np.isfinite(losses[hardest])].tolist():
            place = (table["id"][row].as_py(), table["source_uri"][row].as_py())
            told = (kind.label_words(names, labels, row), kind.predicted_words(names, rows, row))
            likely = kind.likelihoods(labels, rows, row)
            annotation = kind.annotation(len(names), labels, rows, row, is_whole=is_whole)
            of_set = data_set_in(table, row)
            kept.append(HardExample(float(losses[row]), *place, *told, *likely, annotation, of_set))
        kept = heapq.nsmallest(num_examples, kept, key=lambda example: (-example.loss, example.id))
    return kept
