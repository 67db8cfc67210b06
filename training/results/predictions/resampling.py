"""Figures of a model over records that are drawn with replacement, one class a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.results.metrics.average_precision import average_precision, bins_of, num_bins
from shardmill.training.results.metrics.confusion import mean_where, precision_recall_f1
from shardmill.training.results.metrics.tally import Rows
from shardmill.training.results.predictions.resampling_places import (
    BoxFigures,
    MaskFigures,
    summarized_boxes,
    summarized_masks,
)


class ResampledFigures(Protocol):
    """The predictions of a model on N records."""

    def of(self, times: Ints) -> dict[str, float]:
        """Return the figures where each record counts so many times: int64 [N]."""


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """One class an example. Implements ``ResampledFigures``; int64, int64 and float64 [N]."""

    labels: Ints
    predicted: Ints
    losses: Floats
    num_classes: int

    def of(self, times: Ints) -> dict[str, float]:
        """Return accuracy, balanced accuracy, macro-F1 and loss."""
        right = self.labels == self.predicted
        hits, support, taken = (
            np.bincount(values, weights, self.num_classes).astype(np.int64)
            for values, weights in (
                (self.labels, times * right),
                (self.labels, times),
                (self.predicted, times),
            )
        )
        _, recall, f1 = precision_recall_f1(hits, support, taken)
        return {
            "accuracy": float((times * right).sum() / times.sum()),
            "balanced_accuracy": mean_where(recall, support),
            "macro_f1": mean_where(f1, support),
            "loss": float((times * self.losses).sum() / times.sum()),
        }


class LabelFigures:
    """Several labels an example. Implements ``ResampledFigures``."""

    def __init__(self, labels: Any, rows: Rows) -> None:
        """Take labels 0 or 1, ``predicted`` bool and ``probabilities``, [N, C] each, and ``losses`` [N]."""
        wanted, predicted = labels > 0.5, rows["predicted"]
        self._wanted, self._predicted = wanted.astype(np.float32), predicted.astype(np.float32)
        self._hits = self._wanted * self._predicted
        self._exact = (wanted == predicted).all(axis=1)
        self._losses = rows["losses"].astype(np.float64)
        self._records, self._places, self._shape = _threshold_places(wanted, bins_of(rows["probabilities"]))

    def of(self, times: Ints) -> dict[str, float]:
        """Return mean average precision, macro- and micro-F1, exact match and loss."""
        weights, total = times.astype(np.float32), times.sum()
        hits, support, predicted = (
            np.rint(weights @ column).astype(np.int64)
            for column in (self._hits, self._wanted, self._predicted)
        )
        f1 = precision_recall_f1(hits, support, predicted)[2]
        counts = np.bincount(self._places, times[self._records], int(np.prod(self._shape)))
        others, own = counts.astype(np.int64).reshape(self._shape)
        both = int(support.sum() + predicted.sum())
        return {
            "mean_average_precision": mean_where(average_precision(others, own), support),
            "macro_f1": mean_where(f1, support),
            "micro_f1": 2 * int(hits.sum()) / both if both else 0.0,
            "exact_match": float((times * self._exact).sum() / total),
            "loss": float((times * self._losses).sum() / total),
        }


def _threshold_places(wanted: npt.NDArray[np.bool_], bins: Ints) -> tuple[Ints, Ints, tuple[int, int, int]]:
    """Find the probabilities that average precision depends on, and assign each to a threshold.

    The thresholds of a class are the bins that have an example of it: only there recall rises. A probability
    between two thresholds counts for the lower one. Below the lowest threshold it changes nothing.

    Args:
        wanted: bool [N, C], whether the record has the class.
        bins: int64 [N, C], the bin of each probability.

    Returns:
        The record of each such probability, its index in the flattened counts, and the shape of the counts:
        (without or with the class, class, threshold).
    """
    num_classes = wanted.shape[1]
    keys = np.arange(num_classes) * num_bins() + bins
    thresholds = np.unique(keys[wanted])
    firsts = np.searchsorted(thresholds, np.arange(num_classes + 1) * num_bins())
    most = max(int(np.diff(firsts).max(initial=0)), 1)
    columns = np.searchsorted(thresholds, keys, side="right") - 1 - firsts[:-1]
    places = (wanted * num_classes + np.arange(num_classes)) * most + columns
    counts = columns >= 0
    return np.nonzero(counts)[0], places[counts], (2, num_classes, most)


class NumberFigures:
    """Numbers. Implements ``ResampledFigures``."""

    def __init__(self, labels: Any, rows: Rows) -> None:
        """Take labels and ``predicted`` [N, T], and ``losses`` [N]."""
        wanted = labels.astype(np.float64)
        errors = rows["predicted"].astype(np.float64) - wanted
        self._absolute, self._squared = np.abs(errors), np.square(errors)
        self._centred = wanted - wanted.mean(axis=0)  # so that large means cost no precision
        self._losses = rows["losses"].astype(np.float64)

    def of(self, times: Ints) -> dict[str, float]:
        """Return R², absolute error, root mean square error and loss."""
        shares = times / times.sum()
        squared = shares @ self._squared
        variance = shares @ np.square(self._centred) - np.square(shares @ self._centred)
        left = np.divide(squared, variance, out=np.ones_like(squared), where=variance > 0)
        return {
            "r2": float((1.0 - left).mean()),
            "absolute_error": float((shares @ self._absolute).mean()),
            "root_mean_square_error": float(np.sqrt(squared).mean()),
            "loss": float(shares @ self._losses),
        }


# task -> the columns of its files of predictions that its figures need
COMPARED: Final[Mapping[str, Sequence[str]]] = {
    "single-label": ("label_index", "predicted_index"),
    "multi-label": ("labels", "predicted", "probabilities"),
    "regression": ("target", "predicted"),
    "segmentation": ("label", "predicted"),
    "detection": ("labels", "boxes", "crowds", "predicted", "predicted_boxes", "scores"),
}
# Summaries of n records, for tasks whose labels and predictions do not fit into memory. task -> function:
# (labels, rows, number of classes) -> (comparable labels [n], rows [n])
SUMMARIES: Final[Mapping[str, Callable[[Any, Rows, int], tuple[Any, Rows]]]] = {
    "segmentation": summarized_masks,
    "detection": summarized_boxes,
}


def resampled_figures(task: str, labels: Any, rows: Rows, num_names: int) -> ResampledFigures:
    """Return the figures of a model by its task.

    Args:
        task: one of ``COMPARED``.
        labels: labels of N records, in the form that the task needs.
        rows: the predictions for them; for tasks in ``SUMMARIES`` their summaries.
        num_names: the number of classes or targets.
    """
    if task == "single-label":
        predicted, losses = rows["predicted"].astype(np.int64), rows["losses"].astype(np.float64)
        return ClassFigures(labels.astype(np.int64), predicted, losses, num_names)
    if task == "segmentation":
        return MaskFigures(rows)
    if task == "detection":
        return BoxFigures(rows)
    return LabelFigures(labels, rows) if task == "multi-label" else NumberFigures(labels, rows)
