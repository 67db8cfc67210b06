"""The figures of multi-label classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.results.metrics.average_precision import PrecisionCounts
from shardmill.training.results.metrics.confusion import mean_where, per_class, precision_recall_f1
from shardmill.training.results.metrics.tally import Rows


@dataclass(frozen=True, slots=True)
class MultiLabelEvaluation:
    """The result of evaluating a multi-label classifier on a split.

    Attributes:
        hits, support, predicted: int64 [C], for each class the examples that have it and were predicted so,
            those that have it, and those that were predicted so.
        loss: mean of the examples' losses (nats).
        exact: examples whose classes were all predicted, and no others.
        average_precision: float64 [C], of each class; 0 where no example has it.
        num_examples: the number of evaluated examples.
    """

    hits: Ints
    support: Ints
    predicted: Ints
    loss: float
    exact: int
    num_examples: int
    average_precision: Floats

    def figures(self) -> dict[str, float]:
        """Return the figures by name; see ``shardmill.training.results.metrics``."""
        f1 = precision_recall_f1(self.hits, self.support, self.predicted)[2]
        both = int(self.support.sum() + self.predicted.sum())
        return {
            "loss": self.loss,
            "mean_average_precision": mean_where(self.average_precision, self.support),
            "macro_f1": mean_where(f1, self.support),
            "micro_f1": 2 * int(self.hits.sum()) / both if both else 0.0,
            "exact_match": self.exact / max(self.num_examples, 1),
        }

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        rows = per_class(self.hits, self.support, self.predicted, classes)
        for row, precision in zip(rows.values(), self.average_precision.tolist(), strict=True):
            row["average_precision"] = precision
        return {**self.figures(), "num_examples": self.num_examples, "per_class": rows}


class MultiLabelTally:
    """Sums up predictions of several classes an example."""

    def __init__(self, num_classes: int) -> None:
        self._counts = np.zeros((3, num_classes), np.int64)
        self._precision = PrecisionCounts(num_classes)
        self._loss_sum = 0.0
        self._exact = self._num_examples = 0

    def add(self, labels: npt.NDArray[Any], rows: Rows) -> None:
        """Count examples: labels 0 or 1, ``predicted`` bool, ``probabilities`` [n, C]; losses [n]."""
        wanted, predicted = labels > 0.5, rows["predicted"]
        self._counts += np.stack([(wanted & predicted).sum(0), wanted.sum(0), predicted.sum(0)])
        self._precision.add(wanted, rows["probabilities"])
        self._loss_sum += float(rows["losses"].astype(np.float64).sum())
        self._exact += int((wanted == predicted).all(axis=1).sum())
        self._num_examples += len(labels)

    def evaluation(self) -> MultiLabelEvaluation:
        """Return the figures of all examples so far."""
        hits, support, predicted = self._counts.copy()
        loss = self._loss_sum / max(self._num_examples, 1)
        return MultiLabelEvaluation(
            hits,
            support,
            predicted,
            loss,
            self._exact,
            self._num_examples,
            self._precision.average_precision(),
        )
