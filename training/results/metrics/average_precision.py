"""Average precision of each class, from counts of its probabilities in bins.

The precision at each threshold, weighted by the recall that the threshold adds (the definition of
``sklearn.metrics.average_precision_score``). Memory does not grow with the examples: probabilities fall into
bins, and those of one bin count as equal. Bins are narrow around 1/2 (0.0005 in the logit), where a model
that knows little puts everything, and wider where it is sure (0.06 at a logit of 17).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.results.metrics.confusion import ratio

_BINS = 4096
_LARGEST = 88.0  # the logit of the smallest float32, but for its sign
_NARROWED = 8.0  # how much more bins there are around a logit of 0


class PrecisionCounts:
    """Counts of examples by class and probability."""

    def __init__(self, num_classes: int) -> None:
        self._counts = np.zeros((2, num_classes, _BINS), np.int32)  # without the class, with it

    def add(self, wanted: npt.NDArray[np.bool_], probabilities: npt.NDArray[np.floating]) -> None:
        """Count examples: whether each has each class, and its probability, both [n, C]."""
        bins, num_classes = bins_of(probabilities), wanted.shape[1]
        place = (wanted * num_classes + np.arange(num_classes)) * _BINS + bins
        np.add.at(self._counts.reshape(-1), place.ravel(), 1)

    def average_precision(self) -> Floats:
        """Return the average precision of each class, 0 without examples of it: float64 [C]."""
        return average_precision(self._counts[0], self._counts[1])


def average_precision(others: npt.NDArray[np.integer], own: npt.NDArray[np.integer]) -> Floats:
    """Return average precisions: float64 [C].

    Args:
        others: int [C, thresholds], examples without the class, by rising probability.
        own: int [C, thresholds], examples with it.
    """
    found = np.cumsum(own[:, ::-1], axis=1, dtype=np.int64)
    taken = found + np.cumsum(others[:, ::-1], axis=1, dtype=np.int64)
    recalled = (ratio(found, taken) * own[:, ::-1]).sum(axis=1)
    return ratio(recalled, own.sum(axis=1))


def num_bins() -> int:
    """Return the number of bins of each class."""
    return _BINS


def bins_of(probabilities: npt.NDArray[np.floating]) -> Ints:
    """Return the bin of each probability: int64, rising with it."""
    likely = probabilities.astype(np.float64)
    with np.errstate(divide="ignore"):
        logits = np.log(likely) - np.log1p(-likely)
    end = np.arcsinh(_NARROWED * _LARGEST)
    within: Floats = np.arcsinh(_NARROWED * np.clip(logits, -_LARGEST, _LARGEST)) / (2 * end) + 0.5
    return np.minimum((within * _BINS).astype(np.int64), _BINS - 1)
