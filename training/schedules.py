"""Learning rates as pure functions of the step, and the stages of a run.

The classifier may learn alone in the first epochs. Then come the warm-up and a schedule: a line of
``SCHEDULES``, where the settings find its name. Step s of a warm-up of W steps has the share (s + 1) / W of
the highest rate, so that the rate of the first step is above 0, if the schedule has no other way to rise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from shardmill.training.arrays import Floats, Ints

if TYPE_CHECKING:
    from shardmill.training.config import TrainConfig
    from shardmill.training.config.optimizer import OptimizerSettings


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


@dataclass(frozen=True, slots=True)
class AfterWarmup:
    """The steps whose rates a schedule gives.

    Attributes:
        done: float64 [n], share of the steps after the warm-up: 0 at the first, 1 behind the last.
        epochs: int64 [n], the epoch of each.
        final_factor: the setting, or the default of the schedule; 0 where it has none.
        settings: all settings of the optimizer.
    """

    done: Floats
    epochs: Ints
    final_factor: float
    settings: OptimizerSettings


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule.

    Attributes:
        meaning: its description in the settings, in brackets; may be empty.
        factors: float64 [n], the rates as shares of the highest.
        final_factor: the default of ``optimizer.final_factor``; None: it has no such setting.
        rising: shares of the highest rate for shares of the warm-up, float64 [n] each; None: as above.
        depends_on_length: another number of epochs changes the rates; otherwise runs can be lengthened.
    """

    meaning: str
    factors: Callable[[AfterWarmup], Floats]
    final_factor: float | None = None
    rising: Callable[[Floats], Floats] | None = None
    depends_on_length: bool = True


def _cosine(start: float, end: float, done: Floats) -> Floats:
    """Return values along half a cosine from ``start`` (done = 0) to ``end`` (done = 1)."""
    return end + (start - end) * (1 + np.cos(np.pi * done)) / 2


def _to_the_end(steps: AfterWarmup) -> Floats:
    return _cosine(1.0, steps.final_factor, steps.done)


def _in_steps(steps: AfterWarmup) -> Floats:
    falls = np.searchsorted(steps.settings.step_epochs, steps.epochs, side="right")
    return np.power(np.float64(steps.settings.step_factor), falls)


SCHEDULES: Final[Mapping[str, Schedule]] = {
    # Loshchilov and Hutter, "SGDR" (2017), without restarts.
    "cosine": Schedule("down to final_factor", _to_the_end, 0.0),
    "step": Schedule("by step_factor after each of step_epochs", _in_steps, depends_on_length=False),
    # Smith and Topin, "Super-Convergence" (2018), with two halves of a cosine. The momentum stays the same.
    "one-cycle": Schedule(
        "from 1/25 up during the warm-up, then down to final_factor",
        _to_the_end,
        1e-4,
        lambda share: _cosine(1 / 25, 1.0, share),
    ),
    "constant": Schedule("", lambda steps: np.ones(steps.done.shape), depends_on_length=False),
}


def learning_rates(settings: OptimizerSettings, horizon: Horizon, steps: Ints) -> Floats:
    """Return the learning rates of ``steps`` (int64 [n], counted over all epochs): float64 [n]."""
    warm, schedule = horizon.warmup_steps, SCHEDULES[settings.schedule]
    done = np.clip((steps - warm) / max(horizon.total_steps - warm, 1), 0.0, 1.0)
    final = schedule.final_factor if settings.final_factor is None else settings.final_factor
    after = AfterWarmup(done, steps // horizon.steps_per_epoch, final or 0.0, settings)
    if schedule.rising is None:
        rising = (steps + 1) / max(warm, 1)
    else:
        rising = schedule.rising(np.clip(steps / max(warm, 1), 0.0, 1.0))
    rates: Floats = settings.rate * np.where(steps < warm, rising, schedule.factors(after))
    return rates


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
