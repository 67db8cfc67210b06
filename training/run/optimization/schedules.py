"""Learning rates as pure functions of the step: warm-up, then cosine, steps, one-cycle, or a constant.

Except with one-cycle, step s of a warm-up of W steps has the share (s + 1) / W of the highest rate, so that
the rate of the first step is above 0.

* cosine: Loshchilov and Hutter, "SGDR" (2017), without restarts.
* one-cycle: Smith and Topin, "Super-Convergence" (2018), with two halves of a cosine: from 1/25 of the
  highest rate up during the warm-up, then down to ``final_factor``. The momentum stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardmill.training.arrays import Floats, Ints
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
