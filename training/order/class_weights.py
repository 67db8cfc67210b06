"""Class weights: how much an example of each class weighs in the loss.

The alternative to a balance rule: every record still comes once, and those of rare classes count more. Where
both are set, the weights are made from what the rule draws, so that nothing is corrected twice:

* *balanced*: 1 / m_c, m_c the draws of class c in an epoch: all classes weigh the same in an epoch.
* *effective-number*: n_c / (m_c E_c), E_c the effective number of the class's n_c records (see
  ``training.order.balance``); with natural balance 1 / E_c, as in the paper.
* *given*: as they are.

Only their ratios matter, since the loss of a step is the weighted mean over its examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from training.arrays import Floats
from training.config.data import DEFAULT_BETA
from training.order.balance import Counts, class_mass

# (records of each class, draws of each class in an epoch) -> weight of an example of each class: float64 [C].
WeightRule = Callable[[Counts, Counts], Floats]


def balanced(counts: Counts, draws: Counts) -> Floats:
    """All classes weigh the same in an epoch."""
    return _scaled((counts > 0).astype(np.float64), draws)


def effective_number(counts: Counts, draws: Counts, beta: float = DEFAULT_BETA) -> Floats:
    """An example weighs the less, the more records its class has (Cui et al. 2019)."""
    return _scaled(class_mass(counts, beta), draws)


def given(counts: Counts, draws: Counts, weights: Floats) -> Floats:
    """``weights`` (float64 [C'] > 0) as they are, C' at least the number of labels that have records."""
    return weights[: counts.size]


WEIGHT_RULES: Final[Mapping[str, WeightRule]] = {"balanced": balanced, "effective-number": effective_number}


def _scaled(mass: Floats, draws: Counts) -> Floats:
    """``mass`` of a class over its draws; 1 on the average over an epoch, and 0 where never drawn."""
    drawn = draws > 0
    weights = np.zeros(draws.size)
    weights[drawn] = mass[drawn] / draws[drawn]
    scaled: Floats = weights * (draws.sum() / mass[drawn].sum())
    return scaled
