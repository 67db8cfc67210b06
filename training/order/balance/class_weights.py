"""Class weights: how much an example of each class weighs in the loss.

This is the alternative to a balance rule: every record still comes once, and records of rare classes count
more. If both are set, the weights are computed from the draws of the rule, to correct nothing twice:

* *balanced*: 1 / m_c, where m_c is the number of draws of class c in an epoch: all classes weigh the same.
* *effective-number*: n_c / (m_c E_c), where E_c is the effective number of the n_c records of the class (see
  ``shardmill.training.order.balance.rules``); with natural balance this is 1 / E_c, as in the paper.
* *given*: the weights of the configuration.

Only their ratios matter, since the loss of a step is the weighted mean over its examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from shardmill.training.arrays import Floats
from shardmill.training.config.data import DEFAULT_BETA
from shardmill.training.order.balance.rules import Counts, class_mass

# (records of each class, draws of each class in an epoch) -> weight of an example of each class: float64 [C].
WeightRule = Callable[[Counts, Counts], Floats]


def balanced(counts: Counts, draws: Counts) -> Floats:
    """Give all classes the same total weight in an epoch."""
    return _scaled((counts > 0).astype(np.float64), draws)


def effective_number(counts: Counts, draws: Counts, beta: float = DEFAULT_BETA) -> Floats:
    """Give an example less weight the more records its class has (Cui et al. 2019)."""
    return _scaled(class_mass(counts, beta), draws)


def given(counts: Counts, draws: Counts, weights: Floats) -> Floats:
    """Return ``weights`` (float64 [C'] > 0) for the labels that have records."""
    return weights[: counts.size]


WEIGHT_RULES: Final[Mapping[str, WeightRule]] = {"balanced": balanced, "effective-number": effective_number}


def _scaled(mass: Floats, draws: Counts) -> Floats:
    """Divide the mass of each class by its draws. The mean over an epoch is 1; a class never drawn gets 0."""
    drawn = draws > 0
    weights = np.zeros(draws.size)
    weights[drawn] = mass[drawn] / draws[drawn]
    scaled: Floats = weights * (draws.sum() / mass[drawn].sum())
    return scaled
