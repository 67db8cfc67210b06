"""The stages of a run, and learning rates as pure functions of the step.

The classifier may learn alone in the first epochs. Then come warm-up, and cosine, steps, one-cycle, or a
constant.

Except with one-cycle, step s of a warm-up of W steps has the share (s + 1) / W of the highest rate, so that
the rate of the first step is above 0.

* cosine: Loshchilov and Hutter, "SGDR" (2017), without restarts.
* one-cycle: Smith and Topin, "Super-Convergence" (2018), with two halves of a cosine: from 1/25 of the
  highest rate up during the warm-up, then down to ``final_factor``. The momentum stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from shardmill.training.arrays import Floats, Ints
from shardmill.training.config import TrainConfig
from shardmill.training.config.optimizer import OptimizerSettings

_ONE_CYCLE_START = 1 / 25
_FINAL = {"cosine": 0.0, "one-cycle": 1e-4}


@dataclass(frozen=True, slots=True)
class Horizon:
    """The length of a run.

    Attributes:
        total_steps: the steps of the whole run.
        steps_per_epoch: the steps of an epoch.
        warmup_steps: the steps in which the rate rises; fewer than ``total_steps``.
    """

    total_steps: int
    steps_per_epoch: int
    warmup_steps: int


def learning_rates(settings: OptimizerSettings, horizon: Horizon, steps: Ints) -> Floats:
    """Return the learning rates of ``steps`` (int64 [n], counted over all epochs): float64 [n]."""
    warm = horizon.warmup_steps
    # Of the steps after the warm-up: 0 at the first, 1 behind the last.
    done = np.clip((steps - warm) / max(horizon.total_steps - warm, 1), 0.0, 1.0)
    rising = (steps + 1) / max(warm, 1)
    if settings.schedule == "cosine":
        factors = _cosine(1.0, _final(settings), done)
    elif settings.schedule == "one-cycle":
        factors = _cosine(1.0, _final(settings), done)
        rising = _cosine(_ONE_CYCLE_START, 1.0, np.clip(steps / max(warm, 1), 0.0, 1.0))
    elif settings.schedule == "step":
        falls = np.searchsorted(settings.step_epochs, steps // horizon.steps_per_epoch, side="right")
        factors = np.power(np.float64(settings.step_factor), falls)
    else:
        factors = np.ones(steps.shape)
    rates: Floats = settings.rate * np.where(steps < warm, rising, factors)
    return rates


def _final(settings: OptimizerSettings) -> float:
    return _FINAL[settings.schedule] if settings.final_factor is None else settings.final_factor


def _cosine(start: float, end: float, done: Floats) -> Floats:
    """Return values along half a cosine from ``start`` (done = 0) to ``end`` (done = 1)."""
    return end + (start - end) * (1 + np.cos(np.pi * done)) / 2


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a run, with the learning rate of each step.

    Attributes:
        head_epochs: the first epochs, in which only the classifier learns; 0: all layers learn at once. The
            other layers begin with an optimizer of their own: Adam and its like would take far too large
            steps with moments that begin late.
        head_steps: the steps in them.
        head_rate: their learning rate.
        rates: float64 [n], the rates of the steps in which all layers learn; the last one goes on.
    """

    head_epochs: int
    head_steps: int
    head_rate: float
    rates: Floats

    @classmethod
    def of(cls, config: TrainConfig, steps_per_epoch: int) -> Self:
        """Return the stages of a run."""
        steps = config.scheduled_epochs * steps_per_epoch
        horizon = Horizon(steps, steps_per_epoch, config.optimizer.rising_steps(steps))
        rates = learning_rates(config.optimizer, horizon, np.arange(steps))
        head = config.model.warm_head_epochs
        return cls(head, head * steps_per_epoch, config.optimizer.head_rate, rates)

    def is_head(self, epoch: int) -> bool:
        """Return whether only the classifier learns in an epoch (from 0)."""
        return epoch < self.head_epochs

    def rate_at(self, run_step: int) -> float:
        """Return the learning rate of a step, counted over all epochs."""
        if run_step < self.head_steps:
            return self.head_rate
        return float(self.rates[min(run_step - self.head_steps, len(self.rates) - 1)])
