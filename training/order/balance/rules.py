"""Balance rules: how many examples of each class an epoch holds.

A rule is a function from the number of records of each class to the number of draws of each class in one
epoch. The draws add up to the number of records, and are the same in every epoch. To add a rule, write the
function, and add its name to ``RULES`` and to ``config.data.Balance``. A parameter ``beta`` of a rule is the
setting ``balance_beta`` there.

n_c is the number of records of class c, and N is the number of all records. The draws are in proportion to

* *natural*: n_c
* *uniform*: 1
* *sqrt*: the square root of n_c (Mahajan et al.: Exploring the limits of weakly supervised pretraining,
  ECCV 2018)
* *effective-number*: n_c / E_c, E_c = (1 - beta^n_c) / (1 - beta) (Cui et al.: Class-balanced loss based on
  effective number of samples, CVPR 2019, whose weight of an example is 1 / E_c): natural at beta = 0, and
  uniform as beta nears 1
* *repeat-factor*: n_c max(1, sqrt(t / f_c)), f_c = n_c / N (Gupta, Dollár, Girshick: LVIS, CVPR 2019; an
  image has one class here, so an image has the factor of its class)
* *by weights*: w_c

**Several labels** (repeat-factor alone). A label has the factor r_c = max(1, sqrt(t / f_c)), and a record the
largest factor of its labels; 1 if it has none. A record is drawn by its *leading label*: the rarest one,
which has this factor. Records without a label whose factor is above 1 share one more class. So the order by
classes (``shardmill.training.order``) holds for these records too: a class has n records with the same factor
r, and is drawn in proportion to n r.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import ConfigError
from shardmill.training.arrays import Floats, Ints
from shardmill.training.config.data import DEFAULT_BETA, DEFAULT_THRESHOLD

Counts = npt.NDArray[np.int64]
Rule = Callable[[Counts], Counts]


def natural(counts: Counts) -> Counts:
    """Draw every record once."""
    return counts.copy()


def uniform(counts: Counts) -> Counts:
    """Draw all classes that have records equally often, within one; the remainder goes to the larger ones."""
    return divide_draws((counts > 0).astype(np.float64), counts)


def sqrt(counts: Counts) -> Counts:
    """Draw in proportion to the square root of the records: half way between natural and uniform.

    A class with 4 times the records gets twice the draws.
    """
    return divide_draws(np.sqrt(counts.astype(np.float64)), counts)


def effective_number(counts: Counts, beta: float = DEFAULT_BETA) -> Counts:
    """Draw small classes nearly equally often, and those far above 1 / (1 - beta) nearly naturally."""
    return divide_draws(class_mass(counts, beta), counts)


def repeat_factor(counts: Counts, threshold: float = DEFAULT_THRESHOLD) -> Counts:
    """Draw classes whose share of the records is below ``threshold`` more often."""
    frequency = np.maximum(counts, 1) / counts.sum()
    return divide_draws(counts * np.maximum(1.0, np.sqrt(threshold / frequency)), counts)


def by_weights(counts: Counts, weights: Floats) -> Counts:
    """Draw classes in proportion to ``weights`` (float64 [C] >= 0), whatever their sizes.

    A class with weight 0 is left out.

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
    return divide_draws(given, counts)


RULES: Final[Mapping[str, Rule]] = {
    "natural": natural,
    "uniform": uniform,
    "sqrt": sqrt,
    "effective-number": effective_number,
    "repeat-factor": repeat_factor,
}


def class_mass(counts: Counts, beta: float) -> Floats:
    """Return n_c / E_c (see the module's docstring): float64 [C]; 0 for a class without records."""
    if beta == 0:
        return counts.astype(np.float64)
    # 1 - beta^n and 1 - beta without cancellation, for beta near 1.
    rest = -np.expm1(counts * math.log(beta)) / -math.expm1(math.log(beta))
    mass: Floats = counts / np.where(counts > 0, rest, 1.0)
    return mass


def divide_draws(weights: Floats, counts: Counts) -> Counts:
    """Share ``counts.sum()`` draws in proportion to ``weights`` by largest remainders.

    Ties go to the class with more records, then to the lower label. A class without records or without weight
    gets none.
    """
    total = int(counts.sum())
    weights = np.where(counts > 0, weights, 0.0)
    # fsum, since the last bit of numpy's sum depends on the machine.
    shares = weights / math.fsum(weights.tolist()) * total
    draws: Counts = np.floor(shares).astype(np.int64)
    # Rounded, so that remainders that are equal in exact arithmetic tie here too.
    remainders = np.round(np.where(weights > 0, shares - draws, -1.0), 9)
    ranking = np.lexsort((np.arange(counts.size), -counts, -remainders))
    draws[ranking[: total - int(draws.sum())]] += 1
    return draws


class LabelSets(Protocol):
    """Any number of labels a record, each label at most once."""

    @property
    def starts(self) -> Ints:
        """int64 [N + 1]: where the labels of each record begin."""

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """int32 [sum of lengths]: the labels of all records."""

    @property
    def num_classes(self) -> int:
        """Return the number of labels, C."""


def by_leading_label(sets: LabelSets, threshold: float) -> tuple[npt.NDArray[np.int32], Rule]:
    """Return a class for each record, and the rule that balances draws by these classes.

    Args:
        sets: the labels of N records.
        threshold: share of the records; rarer labels are drawn more often.

    Returns:
        int32 [N], the leading label of each record, or C where no label has a factor above 1; and the rule.
    """
    num_records = sets.starts.size - 1
    counts = np.bincount(sets.labels, minlength=sets.num_classes)
    factors = np.maximum(1.0, np.sqrt(threshold * num_records / np.maximum(counts, 1)))
    by_rarity = np.lexsort((np.arange(counts.size), counts))
    places = np.empty_like(by_rarity)
    places[by_rarity] = np.arange(counts.size)
    places[factors <= 1.0] = counts.size
    first = np.full(num_records, counts.size, np.int64)
    filled = np.flatnonzero(np.diff(sets.starts))
    if filled.size:
        # Records without labels have no part of ``labels``, so the others follow each other in it.
        first[filled] = np.minimum.reduceat(places[sets.labels], sets.starts[filled])
    leading = np.append(by_rarity, counts.size)[first].astype(np.int32)
    return leading, partial(_draws, factors=np.append(factors, 1.0))


def _draws(counts: Counts, factors: Floats) -> Counts:
    """Draw classes in proportion to their records times ``factors`` (float64 [C + 1])."""
    return divide_draws(counts * factors[: counts.size], counts)
