"""Compute metrics from a confusion matrix. Pure functions, numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of evaluating a model on a split.

    Attributes:
        confusion: int64 [C, C]; row: the true class, column: the predicted one.
        loss: mean cross-entropy (nats) over all examples.
    """

    confusion: npt.NDArray[np.int64]
    loss: float

    @property
    def num_examples(self) -> int:
        """The number of evaluated examples."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """The share of examples whose class was predicted."""
        return float(np.trace(self.confusion)) / max(self.num_examples, 1)

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        return {
            "accuracy": self.accuracy,
            "loss": self.loss,
            "num_examples": self.num_examples,
            "per_class": per_class(self.confusion, classes),
            "confusion_matrix": self.confusion.tolist(),
        }


def confusion_matrix(
    labels: npt.NDArray[np.integer], predicted: npt.NDArray[np.integer], num_classes: int
) -> npt.NDArray[np.int64]:
    """Count (true, predicted) pairs: int64 [C, C]. ``labels``, ``predicted``: int [N]."""
    pairs = labels.astype(np.int64) * num_classes + predicted
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes).astype(np.int64)


def per_class(confusion: npt.NDArray[np.int64], classes: list[str]) -> dict[str, dict[str, float]]:
    """Return class name -> precision, recall, f1 and support (examples of the class).

    A ratio without a denominator (a class never predicted, or without examples) is 0.
    """
    hits = np.diag(confusion).astype(np.float64)
    support, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    precision, recall = _ratio(hits, predicted), _ratio(hits, support)
    f1 = _ratio(2 * hits, support + predicted)
    return {
        name: {
            "precision": float(precision[label]),
            "recall": float(recall[label]),
            "f1": float(f1[label]),
            "support": int(support[label]),
        }
        for label, name in enumerate(classes)
    }


def _ratio(part: npt.NDArray[np.float64], whole: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)
