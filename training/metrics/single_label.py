"""The figures of single-label classification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.confusion import (
    MACRO_F1,
    confusion_matrix,
    mean_where,
    per_class,
    ratio,
)
from shardmill.training.metrics.evaluation import LOSS, Evaluation, Figure, Rows, Tally

_TOP = 5
NUM_BINS = 15


@dataclass(frozen=True, slots=True)
class Calibration:
    """How often predictions of a given confidence are right (Guo et al. 2017).

    Counts by confidence, the probability of the predicted class. Bin k covers (k / 15, (k + 1) / 15].

    Attributes:
        counts: int64 [15], examples.
        hits: int64 [15], examples whose class was predicted.
        confidence: float64 [15], sum of the confidences.
    """

    counts: Ints = field(default_factory=lambda: np.zeros(NUM_BINS, np.int64))
    hits: Ints = field(default_factory=lambda: np.zeros(NUM_BINS, np.int64))
    confidence: Floats = field(default_factory=lambda: np.zeros(NUM_BINS, np.float64))

    def plus(self, confidence: npt.NDArray[np.floating], right: npt.NDArray[np.bool_]) -> Calibration:
        """Return the counts with those of more examples: confidence [n] of 0 to 1, right [n]."""
        bins = np.clip(
            np.ceil(np.nan_to_num(confidence.astype(np.float64)) * NUM_BINS).astype(np.int64) - 1,
            0,
            NUM_BINS - 1,
        )

        def sums(weights: npt.NDArray[Any]) -> Floats:
            return np.bincount(bins, weights.astype(np.float64), NUM_BINS).astype(np.float64)

        return Calibration(
            self.counts + np.bincount(bins, minlength=NUM_BINS),
            self.hits + sums(right).astype(np.int64),
            self.confidence + sums(confidence),
        )

    def error(self) -> float:
        """Return the expected calibration error: mean |accuracy - confidence| over the examples."""
        total = int(self.counts.sum())
        return float(np.abs(self.hits - self.confidence).sum()) / total if total else 0.0

    def to_result(self) -> list[dict[str, float]]:
        """Return the bins that have examples, JSON-able."""
        return [
            {
                "from": number / NUM_BINS,
                "to": (number + 1) / NUM_BINS,
                "num_examples": int(self.counts[number]),
                "accuracy": float(self.hits[number] / self.counts[number]),
                "confidence": float(self.confidence[number] / self.counts[number]),
            }
            for number in np.flatnonzero(self.counts).tolist()
        ]


@dataclass(frozen=True, slots=True)
class SingleLabelEvaluation(Evaluation):
    """The result of evaluating a classifier on a split.

    Attributes:
        hits, support, predicted: int64 [C], for each class the examples that have it and were predicted so,
            those that have it, and those that were predicted so.
        loss: mean cross-entropy (nats) over all examples.
        num_examples: the number of evaluated examples.
        confusion: int64 [C, C]; row: the true class, column: the predicted one; None: not counted.
        top_hits: examples whose class is among the five likeliest; None: there are at most five classes.
        calibration: counts by confidence.
    """

    task = "single-label"
    FIGURES = (
        Figure(
            "accuracy", "accuracy", "share of the examples whose class was predicted",
            lambda found: int(found.hits.sum()) / max(found.num_examples, 1), is_share=True,
        ),
        Figure(
            "balanced_accuracy", "balanced accuracy", "mean recall of the classes that have examples",
            lambda found: mean_where(ratio(found.hits, found.support), found.support),
            is_share=True, has_curve=False,
        ),
        MACRO_F1,
        Figure(
            "top5_accuracy", "top-5 accuracy",
            "share of the examples whose class is among the five likeliest (of more than five)",
            lambda found: None if found.top_hits is None else found.top_hits / max(found.num_examples, 1),
            is_share=True, chooses=False, has_curve=False,
        ),
        Figure(
            "calibration_error", "calibration error",
            "expected calibration error, 15 bins (Guo et al. 2017)",
            lambda found: None if found.calibration is None else found.calibration.error(),
            falls=True, chooses=False, has_curve=False,
        ),
        LOSS,
    )  # fmt: skip

    hits: Ints
    support: Ints
    predicted: Ints
    loss: float
    num_examples: int
    confusion: Ints | None = None
    top_hits: int | None = None
    calibration: Calibration | None = None

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        result: dict[str, Any] = {
            **self.figures(),
            "num_examples": self.num_examples,
            "per_class": per_class(self.hits, self.support, self.predicted, classes),
        }
        if self.confusion is not None:
            result["confusion_matrix"] = self.confusion.tolist()
        if self.calibration is not None:
            result["calibration"] = self.calibration.to_result()
        return result


class SingleLabelTally(Tally):
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
        matrix = self._confusion.copy()
        count = int(matrix.sum())
        return SingleLabelEvaluation(
            np.diag(matrix),
            matrix.sum(axis=1),
            matrix.sum(axis=0),
            self._loss_sum / max(count, 1),
            count,
            matrix,
            self._top_hits if len(matrix) > _TOP else None,
            self._calibration,
        )


def resampled(
    labels: npt.NDArray[Any], rows: Rows, num_classes: int
) -> Callable[[Ints], SingleLabelEvaluation]:
    """Return a function that evaluates N records, each counted so many times: int64 [N].

    Args:
        labels: int [N].
        rows: ``predicted`` int and ``losses`` [N].
        num_classes: the number of classes.
    """
    wanted, predicted = labels.astype(np.int64), rows["predicted"].astype(np.int64)
    right, losses = wanted == predicted, rows["losses"].astype(np.float64)

    def counts(values: Ints, times: Ints) -> Ints:
        return np.bincount(values, times, num_classes).astype(np.int64)

    def evaluated(times: Ints) -> SingleLabelEvaluation:
        hits, support = counts(wanted, times * right), counts(wanted, times)
        total = int(times.sum())
        loss = float((times * losses).sum() / total)
        return SingleLabelEvaluation(hits, support, counts(predicted, times), loss, total)

    return evaluated
