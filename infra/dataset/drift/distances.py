"""The distance of two populations, and the part of it that chance explains: pure functions of counts.

The parts that chance explains are bounds that samples of one population exceed in one of 10,000 comparisons:
the inequalities of Dvoretzky, Kiefer and Wolfowitz for cumulative shares, of McDiarmid for sums of
differences, and the normal distribution for a single share. Each is in proportion to the *spread* of the
difference of two means, which is smaller where the two samples overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shardmill.infra.dataset.drift.scales import Ints

_RARE = 1e-4  # share of comparisons of samples of one population that exceed the bounds
_CUMULATIVE = math.sqrt(math.log(2 / _RARE) / 2)
_BOUNDED = math.sqrt(math.log(1 / _RARE) / 2)
_NORMAL = 3.9  # quantile of a normal variable that one of 10,000 exceeds


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of two populations, and the part of it that chance explains: 0 to 1 each."""

    value: float
    chance: float


def spread(num_before: int, num_after: int, num_common: int = 0) -> float:
    """Return the standard deviation of the difference of the means of two samples, for values of deviation 1.

    Args:
        num_before: images of the first sample.
        num_after: images of the second sample.
        num_common: images that are in both.
    """
    common = num_common * (1 / num_before - 1 / num_after) ** 2
    before, after = num_before - num_common, num_after - num_common
    return math.sqrt(common + before / num_before**2 + after / num_after**2)


def of_numbers(before: Ints, after: Ints, deviation: float) -> Distance:
    """Compare two histograms (int64 [bins], neither of them empty)."""
    shares = [np.cumsum(counts) / counts.sum() for counts in (before, after)]
    return Distance(float(np.abs(shares[0] - shares[1]).max()), min(1.0, _CUMULATIVE * deviation))


def of_classes(before: Mapping[str, int], after: Mapping[str, int], deviation: float) -> Distance:
    """Compare two counts of classes, neither of them empty."""
    totals = sum(before.values()), sum(after.values())
    value = noise = 0.0
    for name in before.keys() | after.keys():
        counts = before.get(name, 0), after.get(name, 0)
        value += abs(counts[0] / totals[0] - counts[1] / totals[1]) / 2
        both = sum(counts) / sum(totals)
        noise += math.sqrt(both * (1 - both)) / 2
    return Distance(value, min(1.0, (noise + _BOUNDED) * deviation))


def of_bits(before: Ints, num_before: int, after: Ints, num_after: int, deviation: float) -> Distance:
    """Compare how many of the images have each bit (int64 [bits])."""
    value = np.abs(before / num_before - after / num_after).mean()
    both = (before + after) / (num_before + num_after)
    noise = np.sqrt(both * (1 - both)).mean()
    return Distance(float(value), min(1.0, float(noise + _BOUNDED) * deviation))


def of_rates(before: float, after: float, deviation: float) -> Distance:
    """Return the rise of a share; a fall is no distance."""
    both = max(before, after)
    return Distance(max(0.0, after - before), min(1.0, _NORMAL * math.sqrt(both * (1 - both)) * deviation))
