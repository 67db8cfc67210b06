"""The curves of a run so far, by split and by rank, from the points that its folder has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shardmill.flows.flow_runs.showing.training_curve import points_of

# What a point tells besides figures.
_NO_FIGURES = frozenset({"time", "step", "epoch", "rank"})


class Point(NamedTuple):
    """A point of a curve: the step of the run, and the value."""

    step: int
    value: float


# Series, ``train``, ``validation`` or ``rank 0``, -> figure -> its points by step.
Curves = Mapping[str, Mapping[str, list[Point]]]


def read_curves(run_dir: Path) -> Curves:
    """Return the curves of a run.

    Raises:
        CorruptDataError: the figures of its epochs are damaged.
    """
    found: dict[str, dict[str, list[Point]]] = {}
    for point in points_of(run_dir):
        series = f"rank {point['rank']}" if "rank" in point else str(point.get("split", "train"))
        for name, value in point.items():
            is_figure = isinstance(value, int | float) and not isinstance(value, bool)
            if is_figure and name not in _NO_FIGURES and math.isfinite(value):
                points = found.setdefault(series, {}).setdefault(name, [])
                points.append(Point(int(point["step"]), float(value)))
    return found
