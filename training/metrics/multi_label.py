"""The figures of multi-label classification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.confusion import MACRO_F1, mean_where, per_class, ratio
from shardmill.training.metrics.evaluation import LOSS, Evaluation, Figure, Rows, Tally

_BINS = 4096
_LARGEST = 88.0  # the logit of the smallest float32, but for its sign
_NARROWED = 8.0  # how much more bins there are around a logit of 0


class PrecisionCounts:
    """Counts of examples by class and probability, for the average precision of each class.

    It is the precision at each threshold, weighted by the recall that the threshold adds (the definition of
    ``sklearn.metrics.average_precision_score``). Memory does not grow with the examples: probabilities fall
    into bins, and those of one bin count as equal. Bins are narrow around 1/2 (0.0005 in the logit), where a
    model that knows little puts everything, and wider where it is sure (0.06 at a logit of 17).
    """

    def __init__(self, num_classes: int) -> None:
        self._counts = np.zeros((2, num_classes, _BINS), np.int32)  # without the class, with it

    def add(self, labels: npt.NDArray[Any], probabilities: npt.NDArray[np.floating]) -> None:
        """Count examples: labels 0, 1 or NaN (unknown), and probabilities, both [n, C]."""
        bins, num_classes = _bins_of(probabilities), labels.shape[1]
        place = ((labels > 0.5) * num_classes + np.arange(num_classes)) * _BINS + bins
        np.add.at(self._counts.reshape(-1), place[~np.isnan(labels)], 1)

    def average_precision(self) -> Floats:
        """Return the average precision of each class, 0 without examples of it: float64 [C]."""
        return _average_precision(self._counts[0], self._counts[1])


def _average_precision(others: npt.NDArray[np.integer], own: npt.NDArray[np.integer]) -> Floats:
    """Return average precisions: float64 [C].

    Args:
        others: int [C, thresholds], examples without the class, by rising probability.
        own: int [C, thresholds], examples with it.
    """
    found = np.cumsum(own[:, ::-1], axis=1, dtype=np.int64)
    taken = found + np.cumsum(others[:, ::-1], axis=1, dtype=np.int64)
    recalled = (ratio(found, taken) * own[:, ::-1]).sum(axis=1)
    return ratio(recalled, own.sum(axis=1))


def _bins_of(probabilities: npt.NDArray[np.floating]) -> Ints:
    """Return the bin of each probability: int64, rising with it."""
    likely = probabilities.astype(np.float64)
    with np.errstate(divide="ignore"):
        logits = np.log(likely) - np.log1p(-likely)
    end = np.arcsinh(_NARROWED * _LARGEST)
    within: Floats = np.arcsinh(_NARROWED * np.clip(logits, -_LARGEST, _LARGEST)) / (2 * end) + 0.5
    return np.minimum((within * _BINS).astype(np.int64), _BINS - 1)


@dataclass(frozen=True, slots=True)
class MultiLabelEvaluation(Evaluation):
    """The result of evaluating a multi-label classifier on a split.

    Attributes:
        hits, support, predicted: int64 [C], for each class the examples that have it and were predicted so,
            those that have it, and those that were predicted so. Where a class is unknown (NaN), an example
            counts for the others alone.
        loss: mean of the examples' losses (nats), each the mean over the classes.
        exact: examples whose classes were all predicted, and no others.
        num_examples: the number of evaluated examples.
        average_precision: float64 [C], of each class; 0 where no example has it.
    """

    task = "multi-label"
    FIGURES = (
        Figure(
            "mean_average_precision", "mean average precision",
            "mean over the classes that have examples of their average precision",
            lambda found: mean_where(found.average_precision, found.support), is_share=True,
        ),
        MACRO_F1,
        Figure(
            "micro_f1", "micro F1", "F1 of all classes together",
            lambda found: float(
                ratio(2 * found.hits.sum(), found.support.sum() + found.predicted.sum())
            ),
            is_share=True, has_curve=False,
        ),
        Figure(
            "exact_match", "exact match",
            "share of the examples whose classes are all predicted, and no others",
            lambda found: found.exact / max(found.num_examples, 1), is_share=True,
        ),
        LOSS,
    )  # fmt: skip

    hits: Ints
    support: Ints
    predicted: Ints
    loss: float
    exact: int
    num_examples: int
    average_precision: Floats

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        rows = per_class(self.hits, self.support, self.predicted, classes)
        for row, precision in zip(rows.values(), self.average_precision.tolist(), strict=True):
            row["average_precision"] = precision
        return {**self.figures(), "num_examples": self.num_examples, "per_class": rows}


class MultiLabelTally(Tally):
    """Sums up predictions of several classes an example."""

    def __init__(self, num_classes: int) -> None:
        self._counts = np.zeros((3, num_classes), np.int64)
        self._precision = PrecisionCounts(num_classes)
        self._loss_sum = 0.0
        self._exact = self._num_examples = 0

    def add(self, labels: npt.NDArray[Any], rows: Rows) -> None:
        """Count examples: labels 0, 1 or NaN, ``predicted`` bool, ``probabilities`` [n, C]; losses [n]."""
        wanted, predicted = labels > 0.5, rows["predicted"] & ~np.isnan(labels)
        self._counts += np.stack([(wanted & predicted).sum(0), wanted.sum(0), predicted.sum(0)])
        self._precision.add(labels, rows["probabilities"])
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


def resampled(
    labels: npt.NDArray[Any], rows: Rows, _num_classes: int
) -> Callable[[Ints], MultiLabelEvaluation]:
    """Return a function that evaluates N records, each counted so many times: int64 [N].

    Args:
        labels: 0, 1 or NaN [N, C].
        rows: ``predicted`` bool and ``probabilities`` [N, C], ``losses`` [N].
    """
    wanted, known, losses = labels > 0.5, ~np.isnan(labels), rows["losses"].astype(np.float64)
    predicted = rows["predicted"] & known
    columns = [part.astype(np.float32) for part in (wanted & predicted, wanted, predicted)]
    exact = (wanted == predicted).all(axis=1)
    records, places, shape = _threshold_places(wanted, known, _bins_of(rows["probabilities"]))

    def evaluated(times: Ints) -> MultiLabelEvaluation:
        weights, total = times.astype(np.float32), int(times.sum())
        hits, support, taken = (np.rint(weights @ column).astype(np.int64) for column in columns)
        counts = np.bincount(places, times[records], int(np.prod(shape))).astype(np.int64)
        return MultiLabelEvaluation(
            hits,
            support,
            taken,
            float((times * losses).sum() / total),
            int((times * exact).sum()),
            total,
            _average_precision(*counts.reshape(shape)),
        )

    return evaluated


def _threshold_places(
    wanted: npt.NDArray[np.bool_], known: npt.NDArray[np.bool_], bins: Ints
) -> tuple[Ints, Ints, tuple[int, int, int]]:
    """Find the probabilities that average precision depends on, and assign each to a threshold.

    The thresholds of a class are the bins that have an example of it: only there recall rises. A probability
    between two thresholds counts for the lower one. Below the lowest threshold it changes nothing.

    Args:
        wanted: bool [N, C], whether the record has the class.
        known: bool [N, C], whether that is known; otherwise it counts for nothing.
        bins: int64 [N, C], the bin of each probability.

    Returns:
        The record of each such probability, its index in the flattened counts, and the shape of the counts:
        (without or with the class, class, threshold).
    """
    num_classes = wanted.shape[1]
    keys = np.arange(num_classes) * _BINS + bins
    thresholds = np.unique(keys[wanted])
    firsts = np.searchsorted(thresholds, np.arange(num_classes + 1) * _BINS)
    most = max(int(np.diff(firsts).max(initial=0)), 1)
    columns = np.searchsorted(thresholds, keys, side="right") - 1 - firsts[:-1]
    places = (wanted * num_classes + np.arange(num_classes)) * most + columns
    counts = (columns >= 0) & known
    return np.nonzero(counts)[0], places[counts], (2, num_classes, most)
