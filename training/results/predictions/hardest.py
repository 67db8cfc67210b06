"""The examples of a split with the highest losses."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shardmill.training.results.pictures.annotated import Annotation
from shardmill.training.results.predictions.annotations import annotation_of
from shardmill.training.results.predictions.columns import SingleLabelColumns
from shardmill.training.results.predictions.file import columns_of, read_classes, read_predictions


class HardExample(NamedTuple):
    """An example that the model got wrong by far.

    Attributes:
        loss: name of the loss of the task.
        id, source_uri: of the record.
        label, predicted: names of classes, or numbers with the names of their targets.
        annotation: boxes or masks that are drawn; None: there are none.
        label_probability, predicted_probability: what the model gives two single classes; None: they are not
            single classes.
    """

    loss: float
    id: str
    source_uri: str
    label: str
    predicted: str
    label_probability: float | None = None
    predicted_probability: float | None = None
    annotation: Annotation | None = None


def find_hardest(path: Path, num_examples: int, *, is_whole: bool = True) -> list[HardExample]:
    """Return the examples of the highest losses in a file of predictions, the hardest first.

    Examples that were predicted rightly are never hard. Memory holds one part of the file.

    Args:
        path: the file.
        num_examples: at most so many.
        is_whole: the model sees whole images, not their central squares.
    """
    columns, names = columns_of(path), read_classes(path)
    kept: list[HardExample] = []
    for table in read_predictions(path, ["id", "source_uri", "loss", *columns.fields]):
        labels, rows = columns.read(names, table)
        losses = np.where(columns.wrong(labels, rows), rows["losses"], -np.inf)
        hardest = np.argsort(-losses, kind="stable")[:num_examples]
        for row in hardest[np.isfinite(losses[hardest])].tolist():
            place = (table["id"][row].as_py(), table["source_uri"][row].as_py())
            told = (columns.label_words(names, labels, row), columns.predicted_words(names, rows, row))
            hard = HardExample(float(losses[row]), *place, *told)
            if isinstance(columns, SingleLabelColumns):
                own, taken = (
                    rows["probabilities"][row, index] for index in (labels[row], rows["predicted"][row])
                )
                hard = hard._replace(label_probability=float(own), predicted_probability=float(taken))
            annotation = annotation_of(columns, len(names), labels, rows, row, is_whole=is_whole)
            kept.append(hard._replace(annotation=annotation))
        kept = heapq.nsmallest(num_examples, kept, key=lambda example: (-example.loss, example.id))
    return kept
