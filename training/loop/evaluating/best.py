"""Decide which epoch of a run is the best, and when a run no longer improves. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from training.results.metrics.figures import is_smaller_better


def is_better(figures: Mapping[str, float], best: Mapping[str, float] | None, metric: str) -> bool:
    """Return whether ``figures`` are better than the best so far by a metric; the loss decides ties.

    A figure that is not finite is worse than any other.
    """
    return best is None or _goodness(figures, metric) > _goodness(best, metric)


def _goodness(figures: Mapping[str, float], metric: str) -> tuple[float, float]:
    """Return numbers that are the larger the better."""
    sign = -1.0 if is_smaller_better(metric) else 1.0
    found = sign * figures[metric], -figures["loss"]
    first, second = (each if math.isfinite(each) else -math.inf for each in found)
    return first, second


def looks_since_best(history: Sequence[Mapping[str, Any]], best: Mapping[str, float] | None) -> int:
    """Return the number of looks at the validation split after the best epoch."""
    if best is None:
        return 0
    return sum("validation" in row and row["epoch"] > best["epoch"] for row in history)
