"""Repeat factors of images with several labels, as LVIS draws them (Gupta, Dollár, Girshick, CVPR 2019).

f_c is the share of the records that have label c, and t is the threshold. A label has the factor
r_c = max(1, sqrt(t / f_c)). A record has the largest factor of its labels; 1 if it has none.

A record is drawn by its *leading label*: the rarest one, which has this factor. Records without a label whose
factor is above 1 share one more class. So the order by classes (``shardmill.training.order``) holds for these
records
too: a class has n records with the same factor r, and is drawn in proportion to n r.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.order.balance.rules import Counts, Rule, divide_draws


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
