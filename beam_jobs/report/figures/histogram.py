"""Histograms with a fixed number of logarithmic bins, whatever the number of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BARS_SHOWN = 28


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram: values in [low, high)."""

    low: float
    high: float
    count: int


class LogHistogram:
    """Counts of positive values in bins of equal ratio.

    Args:
        low: start of the range; smaller values count in the first bin.
        high: end of the range; larger values count in the last bin.
        per_octave: bins between a value and its double.
    """

    def __init__(self, low: float, high: float, per_octave: int = 32) -> None:
        self._start = math.log2(low)
        self._per_octave = per_octave
        self._counts: npt.NDArray[np.int64] = np.zeros(
            max(1, math.ceil((math.log2(high) - self._start) * per_octave)), np.int64
        )
        self.minimum = math.inf
        self.maximum = -math.inf

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Count values (float64 [N], all positive)."""
        if not len(values):
            return
        self.minimum = min(self.minimum, float(values.min()))
        self.maximum = max(self.maximum, float(values.max()))
        # Moved up by half a millionth of a bin, so that no power of two is rounded into the bin below.
        bins = np.floor((np.log2(values) - self._start) * self._per_octave + 5e-7).astype(np.int64)
        bins = np.clip(bins, 0, len(self._counts) - 1)
        self._counts += np.bincount(bins, minlength=len(self._counts))

    @property
    def total(self) -> int:
        """Number of values."""
        return int(self._counts.sum())

    def bars(self, at_most: int = BARS_SHOWN) -> list[Bar]:
        """Return the occupied range as at most so many bars of equal ratio."""
        occupied = np.flatnonzero(self._counts)
        if not len(occupied):
            return []
        first, last = int(occupied[0]), int(occupied[-1])
        merge = max(1, math.ceil((last - first + 1) / at_most))
        return [
            Bar(self._edge(at), self._edge(at + merge), int(self._counts[at : at + merge].sum()))
            for at in range(first, last + 1, merge)
        ]

    def median(self) -> float:
        """Return the centre of the bin that holds the median; NaN without values."""
        if not self.total:
            return math.nan
        at = int(np.searchsorted(np.cumsum(self._counts), (self.total + 1) // 2))
        middle = 2 ** (self._start + (at + 0.5) / self._per_octave)
        return min(max(middle, self.minimum), self.maximum)

    def _edge(self, at: int) -> float:
        return float(2 ** (self._start + at / self._per_octave))


def histograms(described: Iterable[tuple[str, LogHistogram, Callable[[float], str]]]) -> list[dict[str, Any]]:
    """Return what the page draws of histograms that have values.

    Args:
        described: the title of each, the histogram, and how its values are written.
    """
    return [
        {
            "title": title,
            "bars": [(bar, f"{say(bar.low)} – {say(bar.high)}: {bar.count:,}") for bar in histogram.bars()],
            "highest": max(bar.count for bar in histogram.bars()),
            "minimum": say(histogram.minimum),
            "median": say(histogram.median()),
            "maximum": say(histogram.maximum),
            "is_constant": histogram.minimum == histogram.maximum,
        }
        for title, histogram, say in described
        if histogram.total
    ]
