"""The stages of a run: the classifier may learn alone in its first epochs. For any framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class AloneHead(Protocol):
    """Lets the classifier of a model learn alone for a while."""

    def begin(self) -> None:
        """Freeze all other layers."""

    def end(self) -> None:
        """Let those layers learn that did before."""


class StepRates(Protocol):
    """The learning rate of each step."""

    def at(self, step: int) -> float:
        """Return the rate of a step."""


@dataclass(frozen=True, slots=True)
class HeadStage:
    """The first epochs of a run, if only the classifier learns in them.

    Attributes:
        epochs: their number.
        steps: the steps in them.
        rate: the learning rate.
        optimizer: the optimizer of the classifier. The other layers begin with an optimizer of their own:
            Adam and its like would take far too large steps with moments that begin late.
        alone: freezes and thaws the other layers.
    """

    epochs: int
    steps: int
    rate: float
    optimizer: Any
    alone: AloneHead


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a run.

    Attributes:
        head: the first, in which only the classifier learns; None: all layers learn from the beginning.
        rates: the learning rates of the stage in which all layers learn, counted from its first step.
    """

    head: HeadStage | None
    rates: StepRates

    def head_of(self, epoch: int) -> HeadStage | None:
        """Return the stage of an epoch (from 0) in which only the classifier learns; None: all layers do."""
        return self.head if self.head is not None and epoch < self.head.epochs else None

    def rate_at(self, run_step: int) -> float:
        """Return the learning rate of a step, counted over all epochs."""
        if self.head is None:
            return self.rates.at(run_step)
        return self.head.rate if run_step < self.head.steps else self.rates.at(run_step - self.head.steps)
