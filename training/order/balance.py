"""Balance rules: how many examples of each class an epoch holds.

A rule is a function from the number of records of each class to the number of draws of each class in one
epoch. The draws add up to the number of records, and are the same in every epoch. To add a rule, write the
function and name it in RULES (and in ``config.Balance``, which users see).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Rule = Callable[[Counts], Counts]


def natural(counts: Counts) -> Counts:
    """Every record once."""
    return counts.copy()


def uniform(counts: Counts) -> Counts:
    """Every class that has records equally often, within one; the larger classes take what is left over."""
    return apportion((counts > 0).astype(np.float64), counts)


RULES: Final[Mapping[str, Rule]] = {"natural": natural, "uniform": uniform}


def apportion(weights: npt.NDArray[np.float64], counts: Counts) -> Counts:
    """Share ``counts.sum()`` draws in proportion to ``weights`` by largest remainders.

    Ties go to the class with more records, then to the lower label. A class without records gets none.
    """
    total = int(counts.sum())
    weights = np.where(counts > 0, weights, 0.0)
    shares = weights / weights.sum() * total
    draws: Counts = np.floor(shares).astype(np.int64)
    # Rounded, so that shares that are equal on paper tie whatever the last bit of the division says.
    remainders = np.round(np.where(counts > 0, shares - draws, -1.0), 9)
    ranking = np.lexsort((np.arange(counts.size), -counts, -remainders))
    draws[ranking[: total - int(draws.sum())]] += 1
    return draws
