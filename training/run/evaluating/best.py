"""Decide which epoch of a run is the best, and when a run no longer improves. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmill.training.results.metrics.figures import are_finite, is_smaller_better


def is_better(figures: Mapping[str, float], best: Mapping[str, float] | None, metric: str) -> bool:
    """Return whether ``figures`` are better than the best so far by a metric; the loss decides ties.

    Figures of which the metric or the loss is not finite are never better, and any others are better than
    they.
    """
    if not are_finite(figures, metric):
        return False
    if best is None or not are_finite(best, metric):
        return True
    sign = -1.0 if is_smaller_better(metric) else 1.0
    return (sign * figures[metric], -figures["loss"]) > (sign * best[metric], -best["loss"])


def looks_since_best(history: Sequence[Mapping[str, Any]], best: Mapping[str, float] | None) -> int:
    """Return the number of looks at the validation split after the best epoch."""
    if best is None:
        return 0
    return sum("validation" in row and row["epoch"] > best["epoch"] for row in history)
