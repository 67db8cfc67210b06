"""The figures of regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats
from shardmill.training.results.metrics.tally import Rows


@dataclass(frozen=True, slots=True)
class RegressionEvaluation:
    """The result of evaluating a regression on a split.

    Attributes:
        loss: mean of the examples' losses.
        absolute, squared: float64 [T], mean absolute and mean squared error of each target, in its unit.
        variance: float64 [T], of each target over the split.
        num_examples: the number of evaluated examples.
    """

    loss: float
    absolute: Floats
    squared: Floats
    variance: Floats
    num_examples: int

    def figures(self) -> dict[str, float]:
        """Return the figures by name, over all targets; see ``shardmill.training.results.metrics``."""
        return {
            "loss": self.loss,
            "absolute_error": float(self.absolute.mean()),
            "root_mean_square_error": float(np.sqrt(self.squared).mean()),
            "r2": float(self._explained().mean()),
        }

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object; ``classes`` are the names of the targets."""
        explained, errors = self._explained().tolist(), np.sqrt(self.squared).tolist()
        rows = zip(self.absolute.tolist(), errors, explained, strict=True)
        names = ("absolute_error", "root_mean_square_error", "r2")
        per_target = {
            name: dict(zip(names, row, strict=True)) for name, row in zip(classes, rows, strict=True)
        }
        return {**self.figures(), "num_examples": self.num_examples, "per_target": per_target}

    def _explained(self) -> Floats:
        """Return R² of each target; 0 where the target never changes."""
        change = np.divide(
            self.squared, self.variance, out=np.ones_like(self.squared), where=self.variance > 0
        )
        return 1.0 - change


class RegressionTally:
    """Sums up predicted numbers. Variances follow Chan et al. (1983), so that large means cost nothing."""

    def __init__(self, num_targets: int) -> None:
        self._absolute, self._squared, self._mean, self._spread = np.zeros((4, num_targets))
        self._loss_sum = 0.0
        self._num_examples = 0

    def add(self, labels: npt.NDArray[Any], rows: Rows) -> None:
        """Count examples: labels and ``predicted`` float [n, T], losses float32 [n]."""
        if not len(labels):
            return
        wanted = labels.astype(np.float64)
        errors = rows["predicted"].astype(np.float64) - wanted
        self._absolute += np.abs(errors).sum(axis=0)
        self._squared += np.square(errors).sum(axis=0)
        before, more = self._num_examples, len(labels)
        apart = wanted.mean(axis=0) - self._mean
        self._num_examples = before + more
        self._mean += apart * more / self._num_examples
        self._spread += np.square(wanted - wanted.mean(axis=0)).sum(axis=0)
        self._spread += np.square(apart) * before * more / self._num_examples
        self._loss_sum += float(rows["losses"].astype(np.float64).sum())

    def evaluation(self) -> RegressionEvaluation:
        """Return the figures of all examples so far."""
        count = max(self._num_examples, 1)
        return RegressionEvaluation(
            self._loss_sum / count,
            self._absolute / count,
            self._squared / count,
            self._spread / count,
            self._num_examples,
        )
