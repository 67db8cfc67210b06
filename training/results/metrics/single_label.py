"""The figures of single-label classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Ints
from shardmill.training.results.metrics.calibration import Calibration
from shardmill.training.results.metrics.confusion import (
    confusion_matrix,
    mean_where,
    per_class,
    precision_recall_f1,
)
from shardmill.training.results.metrics.tally import Rows

_TOP = 5


@dataclass(frozen=True, slots=True)
class SingleLabelEvaluation:
    """The result of evaluating a classifier on a split.

    Attributes:
        confusion: int64 [C, C]; row: the true class, column: the predicted one.
        loss: mean cross-entropy (nats) over all examples.
        top_hits: examples whose class is among the five likeliest; None: there are at most five classes.
        calibration: counts by confidence.
    """

    confusion: Ints
    loss: float
    top_hits: int | None = None
    calibration: Calibration | None = None

    @property
    def num_examples(self) -> int:
        """The number of evaluated examples."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """The share of examples whose class was predicted."""
        return float(np.trace(self.confusion)) / max(self.num_examples, 1)

    def figures(self) -> dict[str, float]:
        """Return the figures by name; see ``shardmill.training.results.metrics``."""
        _, recall, f1 = precision_recall_f1(*self._counts)
        support = self._counts[1]
        figures = {
            "loss": self.loss,
            "accuracy": self.accuracy,
            "balanced_accuracy": mean_where(recall, support),
            "macro_f1": mean_where(f1, support),
        }
        if self.top_hits is not None:
            figures["top5_accuracy"] = self.top_hits / max(self.num_examples, 1)
        if self.calibration is not None:
            figures["calibration_error"] = self.calibration.error()
        return figures

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        result: dict[str, Any] = {
            **self.figures(),
            "num_examples": self.num_examples,
            "per_class": per_class(*self._counts, classes),
            "confusion_matrix": self.confusion.tolist(),
        }
        if self.calibration is not None:
            result["calibration"] = self.calibration.to_result()
        return result

    @property
    def _counts(self) -> tuple[Ints, Ints, Ints]:
        """Hits, examples and predictions of each class: int64 [C] each."""
        return np.diag(self.confusion), self.confusion.sum(axis=1), self.confusion.sum(axis=0)


class SingleLabelTally:
    """Sums up predictions of one class an example."""

    def __init__(self, num_classes: int) -> None:
        self._confusion = np.zeros((num_classes, num_classes), np.int64)
        self._loss_sum = 0.0
        self._top_hits = 0
        self._calibration = Calibration()

    def add(self, labels: npt.NDArray[np.integer], rows: Rows) -> None:
        """Count examples: labels int [n], losses and ``predicted`` [n], ``probabilities`` [n, C]."""
        predicted, probabilities = rows["predicted"], rows["probabilities"]
        num_classes = self._confusion.shape[0]
        self._confusion += confusion_matrix(labels, predicted, num_classes)
        self._loss_sum += float(rows["losses"].astype(np.float64).sum())
        if num_classes > _TOP:
            own = np.take_along_axis(probabilities, labels[:, None].astype(np.int64), axis=1)
            # Ties count against the example: a model that gives all classes the same has found nothing.
            self._top_hits += int(((probabilities >= own).sum(axis=1) <= _TOP).sum())
        self._calibration = self._calibration.plus(probabilities.max(axis=1), predicted == labels)

    def evaluation(self) -> SingleLabelEvaluation:
        """Return the figures of all examples so far."""
        num_examples = max(int(self._confusion.sum()), 1)
        top_hits = self._top_hits if self._confusion.shape[0] > _TOP else None
        return SingleLabelEvaluation(
            self._confusion.copy(), self._loss_sum / num_examples, top_hits, self._calibration
        )
