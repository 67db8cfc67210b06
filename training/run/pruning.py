"""The schedule of pruning by Zhu and Gupta, "To prune, or not to prune" (2017).

From step b to step e the share of zeros in each layer rises as s(t) = S (1 - (1 - (t - b) / (e - b))^3).
Every few steps the smallest weights of each layer become zero, up to that share, and stay zero: masks
follow each update of the optimizer. Biases and normalisation layers are left alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from shardmill.training.config.optimizer import PruningSettings


class Pruning(ABC):
    """Makes the smallest weights of a model zero. Each wing implements it.

    Attributes:
        schedule: when weights are chosen, and how many.
    """

    schedule: PruningSchedule

    @abstractmethod
    def share_of_zeros(self) -> float:
        """Return the share of zeros among the weights that can be pruned."""


@dataclass(frozen=True, slots=True)
class PruningSchedule:
    """The share of zeros in each layer, by the steps of the run that are done.

    Attributes:
        begin, end: the steps between which it rises.
        every: steps between two choices of weights.
        final: the share at the end.
    """

    begin: int
    end: int
    every: int
    final: float

    @classmethod
    def of(cls, settings: PruningSettings, steps_per_epoch: int) -> Self | None:
        """Return the schedule of a run; None: nothing is pruned."""
        if not settings.final_sparsity:
            return None
        assert settings.end_epochs is not None, "checked by the settings"
        begin = int(settings.begin_epochs * steps_per_epoch)
        end = max(round(settings.end_epochs * steps_per_epoch), begin + 1)
        return cls(begin, end, settings.every_steps, settings.final_sparsity)

    def sparsity(self, steps_done: int) -> float:
        """Return the share of zeros that is wanted after so many steps of the run."""
        left = 1.0 - min(max((steps_done - self.begin) / (self.end - self.begin), 0.0), 1.0)
        return self.final * (1.0 - left**3)

    def is_due(self, steps_done: int) -> bool:
        """Return whether the weights are chosen after so many steps of the run."""
        since = steps_done - self.begin
        return since > 0 and steps_done <= self.end and (since % self.every == 0 or steps_done == self.end)

    def is_complete(self, steps_done: int) -> bool:
        """Return whether the final share is reached."""
        return steps_done >= self.end
