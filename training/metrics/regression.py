"""The figures of regression, each averaged over the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.evaluation import LOSS, Evaluation, Figure, Rows, Tally


@dataclass(frozen=True, slots=True)
class RegressionEvaluation(Evaluation):
    """The result of evaluating a regression on a split.

    Attributes:
        loss: mean squared error of standard scores.
        absolute, squared: float64 [T], mean absolute and mean squared error of each target, in its unit.
        variance: float64 [T], of each target over the split.
        num_examples: the number of evaluated examples.
    """

    task = "regression"
    FIGURES = (
        Figure(
            "r2", "R²", "share of the variance that is explained; 0 is as good as the mean of the split",
            lambda found: float(found.explained().mean()),
        ),
        Figure(
            "absolute_error", "absolute error", "mean absolute error, in the unit of the target",
            lambda found: float(found.absolute.mean()), falls=True,
        ),
        Figure(
            "root_mean_square_error", "root mean square error", "in the unit of the target",
            lambda found: float(np.sqrt(found.squared).mean()), falls=True, has_curve=False,
        ),
        LOSS,
    )  # fmt: skip

    loss: float
    absolute: Floats
    squared: Floats
    variance: Floats
    num_examples: int

    def explained(self) -> Floats:
        """Return R² of each target; 0 where the target never changes: float64 [T]."""
        change = np.divide(
            self.squared, self.variance, out=np.ones_like(self.squared), where=self.variance > 0
        )
        return 1.0 - change

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object; ``classes`` are the names of the targets."""
        per_target = {}
        for number, name in enumerate(classes):
            one = slice(number, number + 1)
            parts = self.absolute[one], self.squared[one], self.variance[one]
            per_target[name] = RegressionEvaluation(self.loss, *parts, self.num_examples).figures()
            del per_target[name][LOSS.name]
        return {**self.figures(), "num_examples": self.num_examples, "per_target": per_target}


class RegressionTally(Tally):
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


def resampled(
    labels: npt.NDArray[Any], rows: Rows, _num_targets: int
) -> Callable[[Ints], RegressionEvaluation]:
    """Return a function that evaluates N records, each counted so many times: int64 [N].

    Args:
        labels: [N, T].
        rows: ``predicted`` [N, T] and ``losses`` [N].
    """
    wanted, losses = labels.astype(np.float64), rows["losses"].astype(np.float64)
    errors = rows["predicted"].astype(np.float64) - wanted
    absolute, squared = np.abs(errors), np.square(errors)
    centred = wanted - wanted.mean(axis=0)  # so that large means cost no precision

    def evaluated(times: Ints) -> RegressionEvaluation:
        shares = times / times.sum()
        variance = shares @ np.square(centred) - np.square(shares @ centred)
        parts = (shares @ absolute, shares @ squared, variance)
        return RegressionEvaluation(float(shares @ losses), *parts, int(times.sum()))

    return evaluated
