"""The figures of all tasks, found in the modules of this package that define an ``Evaluation``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from shardmill.training.discovery import classes_in
from shardmill.training.metrics.evaluation import LOSS, Evaluation, Figure


def _ordered(kinds: Mapping[str, type[Evaluation]]) -> dict[str, Figure]:
    """Return the figures by name: the first one of each task, then the others, the loss last.

    Raises:
        ValueError: two tasks have different figures of one name.
    """
    firsts = [kind.FIGURES[0] for kind in kinds.values()]
    others = [figure for kind in kinds.values() for figure in kind.FIGURES[1:] if figure is not LOSS]
    found: dict[str, Figure] = {}
    for figure in (*firsts, *others, LOSS):
        if found.setdefault(figure.name, figure) is not figure:
            raise ValueError(f"two tasks define the figure {figure.name} differently")
    return found


_FOUND = classes_in("shardmill.training.metrics", Evaluation, leave_out=("figures",))
_KINDS: Final = {kind.task: kind for kind in sorted(_FOUND, key=lambda kind: kind.task)}
FIGURES: Final[Mapping[str, Figure]] = _ordered(_KINDS)  # in the order in which a page shows them
# Task -> the figures by which its models are chosen and compared; the first one where nothing else is set.
CHOOSING: Final[Mapping[str, tuple[str, ...]]] = {
    task: tuple(figure.name for figure in kind.FIGURES if figure.chooses) for task, kind in _KINDS.items()
}
CHOICES: Final = tuple(name for name, figure in FIGURES.items() if figure.chooses)


def are_finite(figures: Mapping[str, float | None], metric: str) -> bool:
    """Return whether a metric and the loss are finite: other figures are never better than any."""
    found = (figures[metric], figures.get("loss", 0.0))
    return all(figure is not None and math.isfinite(figure) for figure in found)


def is_smaller_better(name: str) -> bool:
    """Return whether a smaller value of a figure is better; a figure that is not listed rises."""
    return name in FIGURES and FIGURES[name].falls
