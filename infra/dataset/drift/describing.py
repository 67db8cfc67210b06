"""Describe the typical values of two populations as text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shardmill.infra.dataset.drift.scales import Ints, Trait
from shardmill.infra.html.formatting import share


def typical(trait: Trait, before: Ints, after: Ints) -> tuple[str, str]:
    """Describe the largest difference of two histograms (int64 [bins]) by a text for each.

    The medians, or if these are alike the shares of images up to the value where the shares differ most.
    """
    medians = [trait.shown(trait.scale.value(_median(counts))) for counts in (before, after)]
    if medians[0] != medians[1]:
        return f"median {medians[0]}", f"median {medians[1]}"
    below = [np.cumsum(counts) for counts in (before, after)]
    place = int(np.abs(below[0] / below[0][-1] - below[1] / below[1][-1]).argmax())
    value = trait.shown(trait.scale.value(place))
    was, now = (f"{share(int(counts[place]), int(counts[-1]))} up to {value}" for counts in below)
    return was, now


def leading_class(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, str]:
    """Describe the class whose share changed most: its share before and after."""
    totals = sum(before.values()), sum(after.values())
    by_change = {
        name: abs(before.get(name, 0) / totals[0] - after.get(name, 0) / totals[1])
        for name in sorted(before.keys() | after.keys())
    }
    name = max(by_change, key=lambda one: by_change[one])
    was, now = share(before.get(name, 0), totals[0]), share(after.get(name, 0), totals[1])
    return f"“{name}” {was}", f"“{name}” {now}"


def _median(counts: Ints) -> int:
    below = np.cumsum(counts)
    return int(np.searchsorted(below, (below[-1] + 1) // 2))
