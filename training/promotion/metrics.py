"""The figures that can decide a promotion, by task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from shardmill.infra.errors import ConfigError

Metric = Literal[
    "accuracy",
    "macro_f1",
    "mean_average_precision",
    "micro_f1",
    "exact_match",
    "average_precision",
    "average_precision_50",
    "average_recall",
    "mean_iou",
    "pixel_accuracy",
    "r2",
    "absolute_error",
    "root_mean_square_error",
    "loss",
]

# The first one of a task is its default. Tasks that are not listed are promoted by hand.
DECIDING: Final[Mapping[str, tuple[Metric, ...]]] = {
    "single-label": ("accuracy", "macro_f1", "loss"),
    "multi-label": ("mean_average_precision", "macro_f1", "micro_f1", "exact_match", "loss"),
    "regression": ("r2", "absolute_error", "root_mean_square_error", "loss"),
    "detection": ("average_precision", "average_precision_50", "average_recall", "loss"),
    "segmentation": ("mean_iou", "pixel_accuracy", "loss"),
}


def metric_of(task: str, wanted: str) -> str:
    """Return the figure that decides for a task.

    Args:
        task: its name.
        wanted: the figure that the rules name, or "auto".

    Raises:
        ConfigError: runs of the task are not compared, or not by this figure.
    """
    known = DECIDING.get(task, ())
    if not known:
        raise ConfigError(
            f"runs that learned {task} are not compared by figures",
            "decide by hand: shardmill model promote RUN --reason TEXT",
        )
    if wanted == "auto":
        return known[0]
    if wanted not in known:
        raise ConfigError(f"{wanted} is no figure of {task}", f"there are: {', '.join(known)}")
    return wanted
