"""The examples of a split with the highest losses."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.results.predictions.file import probabilities_of, read_predictions

_COLUMNS = [
    "id",
    "source_uri",
    "label",
    "predicted",
    "label_index",
    "predicted_index",
    "loss",
    "probabilities",
]


class HardExample(NamedTuple):
    """An example that the model got wrong by far.

    Attributes:
        loss: cross-entropy (nats).
        id, source_uri: of the record.
        label, predicted: names of classes.
        label_probability, predicted_probability: what the model gives the two classes.
    """

    loss: float
    id: str
    source_uri: str
    label: str
    predicted: str
    label_probability: float
    predicted_probability: float


def find_hardest(path: Path, num_examples: int) -> list[HardExample]:
    """Return the examples of the highest losses in a file of predictions, the hardest first.

    Examples that were predicted rightly are never hard. Memory holds one part of the file.
    """
    kept: list[HardExample] = []
    for rows in read_predictions(path, _COLUMNS):
        losses = np.where(
            rows["label_index"].to_numpy() == rows["predicted_index"].to_numpy(),
            -np.inf,
            rows["loss"].to_numpy(),
        )
        hardest = np.argsort(-losses, kind="stable")[:num_examples]
        hardest = hardest[np.isfinite(losses[hardest])]
        probabilities = probabilities_of(rows)
        for row in hardest.tolist():
            one = {name: rows[name][row].as_py() for name in _COLUMNS[:7]}
            label, predicted = one.pop("label_index"), one.pop("predicted_index")
            own, taken = (float(probabilities[row, index]) for index in (label, predicted))
            kept.append(HardExample(**one, label_probability=own, predicted_probability=taken))
        kept = heapq.nsmallest(num_examples, kept, key=lambda example: (-example.loss, example.id))
    return kept
