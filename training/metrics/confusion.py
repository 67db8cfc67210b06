"""The confusion matrix, and the measures of each class that follow from it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.evaluation import Figure


def confusion_matrix(
    labels: npt.NDArray[np.integer], predicted: npt.NDArray[np.integer], num_classes: int
) -> Ints:
    """Count (true, predicted) pairs: int64 [C, C]. ``labels``, ``predicted``: int [N]."""
    pairs = labels.astype(np.int64) * num_classes + predicted
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes).astype(np.int64)


def precision_recall_f1(hits: Ints, support: Ints, predicted: Ints) -> tuple[Floats, Floats, Floats]:
    """Return precision, recall and F1 of each class: float64 [C] each.

    A ratio without a denominator (a class never predicted, or without examples) is 0.

    Args:
        hits: int64 [C], examples of the class that were predicted as such.
        support: int64 [C], examples of the class.
        predicted: int64 [C], predictions of the class.
    """
    return ratio(hits, predicted), ratio(hits, support), ratio(2 * hits, support + predicted)


def per_class(hits: Ints, support: Ints, predicted: Ints, classes: list[str]) -> dict[str, dict[str, float]]:
    """Return class name -> precision, recall, f1 and support (examples of the class)."""
    precision, recall, f1 = precision_recall_f1(hits, support, predicted)
    return {
        name: {
            "precision": float(precision[label]),
            "recall": float(recall[label]),
            "f1": float(f1[label]),
            "support": int(support[label]),
        }
        for label, name in enumerate(classes)
    }


def mean_where(values: Floats, support: Ints) -> float:
    """Return the mean over the classes that have examples; 0 without any."""
    present = support > 0
    return float(values[present].mean()) if present.any() else 0.0


def ratio(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> Floats:
    """Divide element by element; 0 where the denominator is 0."""
    quotient = np.zeros(part.shape, np.float64)
    np.divide(part.astype(np.float64), whole, out=quotient, where=whole > 0)
    return quotient


MACRO_F1: Final = Figure(
    "macro_f1",
    "macro F1",
    "mean F1 of the classes that have examples; of several labels a class is predicted above 0.5",
    lambda found: mean_where(
        precision_recall_f1(found.hits, found.support, found.predicted)[2], found.support
    ),
    is_share=True,
)
