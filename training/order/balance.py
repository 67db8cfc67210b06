"""Balance rules: how many examples of each class an epoch holds.

A rule is a function from the number of records of each class to the number of draws of each class in one
epoch. The draws add up to the number of records, and are the same in every epoch. To add a rule, write the
function and name it in RULES (and in ``config.Balance``, which users see). A rule with parameters has
defaults, or is made by ``functools.partial``.

``n_c`` is the number of records of class c and N that of all; a rule draws in proportion to

* *natural*: n_c
* *uniform*: 1
* *sqrt*: the square root of n_c (Mahajan et al.: Exploring the limits of weakly supervised pretraining,
  ECCV 2018)
* *effective-number*: n_c / E_c, E_c = (1 - beta^n_c) / (1 - beta) (Cui et al.: Class-balanced loss based on
  effective number of samples, CVPR 2019, whose weight of an example is 1 / E_c): natural at beta = 0, and
  uniform as beta nears 1
* *repeat-factor*: n_c max(1, sqrt(t / f_c)), f_c = n_c / N (Gupta, Dollár, Girshick: LVIS, CVPR 2019; an
  image has one class here, so the factor of the image is that of its class)
* *by weights*: w_c
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from infra.errors import ConfigError
from training.arrays import Floats
from training.config.data import DEFAULT_BETA, DEFAULT_THRESHOLD

Counts = npt.NDArray[np.int64]
Rule = Callable[[Counts], Counts]


def natural(counts: Counts) -> Counts:
    """Every record once."""
    return counts.copy()


def uniform(counts: Counts) -> Counts:
    """Every class that has records equally often, within one; the larger classes take what is left over."""
    return apportion((counts > 0).astype(np.float64), counts)


def sqrt(counts: Counts) -> Counts:
    """Half way between natural and uniform: a class of four times the records is drawn twice as often."""
    return apportion(np.sqrt(counts.astype(np.float64)), counts)


def effective_number(counts: Counts, beta: float = DEFAULT_BETA) -> Counts:
    """Nearly uniform among classes far below 1 / (1 - beta) records, nearly natural among those far above."""
    return apportion(class_mass(counts, beta), counts)


def repeat_factor(counts: Counts, threshold: float = DEFAULT_THRESHOLD) -> Counts:
    """Only classes of a smaller part of the records than ``threshold`` are drawn more often."""
    frequency = np.maximum(counts, 1) / counts.sum()
    return apportion(counts * np.maximum(1.0, np.sqrt(threshold / frequency)), counts)


def by_weights(counts: Counts, weights: Floats) -> Counts:
    """In proportion to ``weights`` (float64 [C] >= 0), whatever the classes' sizes; zero leaves a class out.

    Raises:
        ConfigError: no class that has records has a weight.
    """
    given = np.zeros(counts.size)
    given[: weights.size] = weights[: counts.size]
    if not given[counts > 0].any():
        raise ConfigError(
            "data.balance_weights gives weight to no class that has records",
            "name a class of the train split with a weight above 0",
        )
    return apportion(given, counts)


RULES: Final[Mapping[str, Rule]] = {
    "natural": natural,
    "uniform": uniform,
    "sqrt": sqrt,
    "effective-number": effective_number,
    "repeat-factor": repeat_factor,
}


def class_mass(counts: Counts, beta: float) -> Floats:
    """n_c / E_c (see the module's docstring): float64 [C]; 0 for a class without records."""
    if beta == 0:
        return counts.astype(np.float64)
    # 1 - beta^n and 1 - beta without cancellation, for beta near 1.
    rest = -np.expm1(counts * math.log(beta)) / -math.expm1(math.log(beta))
    mass: Floats = counts / np.where(counts > 0, rest, 1.0)
    return mass


def apportion(weights: Floats, counts: Counts) -> Counts:
    """Share ``counts.sum()`` draws in proportion to ``weights`` by largest remainders.

    Ties go to the class with more records, then to the lower label. A class without records or without weight
    gets none.
    """
    total = int(counts.sum())
    weights = np.where(counts > 0, weights, 0.0)
    # fsum, since the last bit of numpy's sum depends on the machine's vectors.
    shares = weights / math.fsum(weights.tolist()) * total
    draws: Counts = np.floor(shares).astype(np.int64)
    # Rounded, so that shares that are equal on paper tie whatever the last bit of the division says.
    remainders = np.round(np.where(weights > 0, shares - draws, -1.0), 9)
    ranking = np.lexsort((np.arange(counts.size), -counts, -remainders))
    draws[ranking[: total - int(draws.sum())]] += 1
    return draws
