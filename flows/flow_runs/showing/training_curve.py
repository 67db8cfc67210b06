"""The curve of a training as pictures and tables, from the points that its folder has so far. No Prefect."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardmill.infra.html.charts import Panel, Point, panels
from shardmill.training.metrics.figures import FIGURES
from shardmill.training.results.run_files.curve import read_curve
from shardmill.training.results.run_files.history import read_history

_POINTS = 200  # most points of a line; more cannot be seen
_GIB = 1 << 30

Points = Sequence[Mapping[str, Any]]
# figure -> title, and the factor of its unit
_SPEED = {
    "learning_rate": ("learning rate", 1.0),
    "images_per_second": ("images/s in the last steps", 1.0),
    "input_wait_fraction": ("waiting for data (%)", 100.0),
    "memory_process_bytes": ("memory (GiB)", 1 / _GIB),
}
_OF_RANKS = {
    "step_seconds": ("step (ms)", 1000.0),
    "input_wait_fraction": ("waiting for data (%)", 100.0),
    "waiting_seconds": ("waiting for other ranks (ms)", 1000.0),
    "memory_process_bytes": ("memory (GiB)", 1 / _GIB),
}


def points_of(run_dir: Path) -> Points:
    """Return the points of a run so far; a run of an earlier release has one point an epoch.

    Raises:
        CorruptDataError: the figures of its epochs are damaged.
    """
    return read_curve(run_dir) or list(_points_of_epochs(run_dir))


def _points_of_epochs(run_dir: Path) -> Iterator[dict[str, Any]]:
    for row in read_history(run_dir):
        for split in ("train", "validation"):
            if split in row:
                yield {"split": split, "epoch": row["epoch"], "step": row["step"], **row[split]}


def main_name(points: Points) -> str | None:
    """Return the name of the most important figure besides the loss; None: there is none yet."""
    validation = [point for point in points if point.get("split") == "validation"]
    found = {name for point in validation or points for name in point}
    return next((name for name in FIGURES if name != "loss" and name in found), None)


def quality_svg(title: str, points: Points) -> str:
    """Draw loss and main figure by step."""
    name = main_name(points)
    shown = [Panel("loss", series_of(points, "loss"))]
    if name is not None:
        shown.append(Panel(FIGURES[name].words, series_of(points, name)))
    return panels(title, shown, "step")


def speed_svg(title: str, points: Points) -> str:
    """Draw learning rate, images per second, waiting and memory by step."""
    shown = [
        Panel(words, series)
        for figure, (words, factor) in _SPEED.items()
        if (series := series_of(points, figure, factor))
    ]
    return panels(title, shown, "step") if shown else ""


def ranks_svg(title: str, points: Points) -> str:
    """Draw how each rank spends the time of each step; empty if the run has no ranks."""
    of_ranks = [{**point, "split": f"rank {point['rank']}"} for point in points if "rank" in point]
    shown = [
        Panel(words, series)
        for figure, (words, factor) in _OF_RANKS.items()
        if (series := series_of(of_ranks, figure, factor))
    ]
    return panels(title, shown, "step") if shown else ""


def series_of(points: Points, figure: str, factor: float = 1.0) -> dict[str, list[Point]]:
    """Return {split: [(step, value), ...]} of one figure, with as many points as a chart can show."""
    series: dict[str, list[Point]] = {}
    for point in points:
        value = point.get(figure)
        if isinstance(value, int | float) and math.isfinite(value) and "split" in point:
            series.setdefault(str(point["split"]), []).append((float(point["step"]), factor * value))
    return {name: _thinned(found) for name, found in series.items()}


def _thinned(points: list[Point]) -> list[Point]:
    every = math.ceil(len(points) / _POINTS)
    # The newest point is always there.
    return points[::-1][::every][::-1]


def latest_rows(points: Points) -> list[dict[str, Any]]:
    """Return the newest figures of each split, a row each."""
    rows = []
    for split in ("train", "validation"):
        point = next((one for one in reversed(points) if one.get("split") == split), None)
        if point is not None:
            name = main_name(points)
            row: dict[str, Any] = {"split": split, "epoch": point.get("epoch"), "step": point["step"]}
            row["loss"] = point.get("loss")
            if name is not None:
                row[FIGURES[name].words] = point.get(name)
            for figure, (words, factor) in _SPEED.items():
                row[words] = factor * point[figure] if point.get(figure) is not None else None
            rows.append(row)
    return rows


def rank_rows(points: Points) -> list[dict[str, Any]]:
    """Return the latest figures of each rank, a row each."""
    latest = {point["rank"]: point for point in points if "rank" in point}
    return [
        {
            "rank": rank,
            "device": point.get("device"),
            "share (%)": 100 * point["share"],
            "step": point["step"],
            **{
                words: factor * point[figure] if point.get(figure) is not None else None
                for figure, (words, factor) in _OF_RANKS.items()
            },
        }
        for rank, point in sorted(latest.items())
    ]
