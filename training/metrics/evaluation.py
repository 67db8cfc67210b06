"""A figure, the evaluation of a model by the figures of its task, and the sums from which it is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy.typing as npt

Rows = Mapping[str, npt.NDArray[Any]]
_NOT_FINITE = "not finite"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: how it is calculated, named, shown and compared. A value that is not finite is None in files.

    Attributes:
        name: its name in results, settings and TensorBoard.
        words: its name for people.
        meaning: its definition in a line.
        of: calculates it from an evaluation; None: it has no value there.
        is_share: it is a share of examples or the like, shown in percent.
        falls: a smaller value is better.
        chooses: the best model of a run may be chosen by it, and two models are compared by it.
        has_curve: the page of a run draws it by epoch.
    """

    name: str
    words: str
    meaning: str
    of: Callable[[Any], float | None]
    is_share: bool = False
    falls: bool = False
    chooses: bool = True
    has_curve: bool = True

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


LOSS: Final = Figure(
    "loss", "loss", "mean over the examples of the loss of the task", lambda found: found.loss, falls=True
)


class Evaluation(ABC):
    """The outcome of evaluating a model on a split.

    Attributes:
        task: the name of the task.
        FIGURES: its figures in the order in which a page shows them; the first one chooses the best model
            where nothing else is set.
        loss: mean of the losses of the examples, without label smoothing.
        num_examples: the number of evaluated examples.
    """

    __slots__ = ()
    task: ClassVar[str]
    FIGURES: ClassVar[tuple[Figure, ...]]
    loss: float
    num_examples: int

    def figures(self) -> dict[str, float]:
        """Return the figures by name, among them ``loss``, as far as they have a value."""
        values = {figure.name: figure.of(self) for figure in self.FIGURES}
        return {name: value for name, value in values.items() if value is not None}

    @abstractmethod
    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run.

        Args:
            classes: names of the classes or targets.
        """


class Tally(ABC):
    """Sums up predictions, batch by batch, in memory that grows by a few bytes for each found box at most."""

    @abstractmethod
    def add(self, labels: Any, rows: Rows) -> None:
        """Count examples.

        Args:
            labels: as the task needs them: an array [n, ...], or several by name.
            rows: ``losses`` float32 [n] and the predictions of the task, each [n, ...].
        """

    @abstractmethod
    def evaluation(self) -> Evaluation:
        """Return the figures of all examples so far."""
