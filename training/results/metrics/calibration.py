"""Calibration: how often predictions of a given confidence are right (Guo et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints

NUM_BINS = 15


@dataclass(frozen=True, slots=True)
class Calibration:
    """Counts by confidence, the probability of the predicted class. Bin k covers (k / 15, (k + 1) / 15].

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
