"""Every figure of an evaluation: its name for people, its unit, and whether a smaller one is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NOT_FINITE = "not finite"


@dataclass(frozen=True, slots=True)
class Figure:
    """How a figure is shown and compared. A value that is not finite is None in figures from a file.

    Attributes:
        words: its name for people.
        is_share: it is a share of examples or the like, shown in percent.
        falls: a smaller value is better.
    """

    words: str
    is_share: bool = False
    falls: bool = False

    def text(self, value: float | None) -> str:
        """Return a value of the figure for people."""
        if value is None:
            return _NOT_FINITE
        return f"{value:.1%}" if self.is_share else f"{value:.3f}"

    def exact(self, value: float | None) -> str:
        """Return a value with a digit more than ``text``."""
        if value is None:
            return _NOT_FINITE
        return f"{value:.2%}" if self.is_share else f"{value:.4f}"

    def change(self, difference: float) -> str:
        """Return a difference of two values with its sign; of shares in percentage points."""
        return f"{100 * difference:+.2f} points" if self.is_share else f"{difference:+.4f}"

    def precise(self, value: float | None) -> str:
        """Return the name of the figure and a value, with a digit more than ``text``."""
        return f"{self.words} {self.exact(value)}"


# In the order in which a page shows them.
FIGURES: Final = {
    "accuracy": Figure("accuracy", is_share=True),
    "balanced_accuracy": Figure("balanced accuracy", is_share=True),
    "mean_iou": Figure("mean IoU", is_share=True),
    "pixel_accuracy": Figure("pixel accuracy", is_share=True),
    "mean_average_precision": Figure("mean average precision", is_share=True),
    "average_precision": Figure("average precision (overlap 0.5 to 0.95)", is_share=True),
    "average_precision_50": Figure("average precision (overlap 0.5)", is_share=True),
    "average_recall": Figure("average recall", is_share=True),
    "macro_f1": Figure("macro F1", is_share=True),
    "top5_accuracy": Figure("top-5 accuracy", is_share=True),
    "calibration_error": Figure("calibration error", falls=True),
    "exact_match": Figure("exact match", is_share=True),
    "micro_f1": Figure("micro F1", is_share=True),
    "r2": Figure("R²"),
    "absolute_error": Figure("absolute error", falls=True),
    "root_mean_square_error": Figure("root mean square error", falls=True),
    "loss": Figure("loss", falls=True),
}


def are_finite(figures: Mapping[str, float | None], metric: str) -> bool:
    """Return whether a metric and the loss are finite: other figures are never better than any."""
    found = (figures[metric], figures.get("loss", 0.0))
    return all(figure is not None and math.isfinite(figure) for figure in found)


def is_smaller_better(name: str) -> bool:
    """Return whether a smaller value of a figure is better; a figure that is not listed rises."""
    return name in FIGURES and FIGURES[name].falls
