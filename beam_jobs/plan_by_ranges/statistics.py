"""Figures of the images of each split, from one range after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.plan.statistics import DECIMALS, IMAGES_AT_A_TIME, Moments, moments_of
from shardmill.infra.format.contract import SPLITS, SplitStatistics


def statistics_of(figures: Iterable[pa.Table]) -> dict[str, SplitStatistics]:
    """Return split -> figures of its images, as ``split_statistics`` (shardmill.beam_jobs.plan) does.

    Args:
        figures: height, width, stored_bytes, pixel_mean, pixel_std and split of the records, in order.
    """
    found: dict[int, _SplitFigures] = {}
    for table in figures:
        splits = table["split"].to_numpy()
        for code in np.unique(splits).tolist():
            members = table.take(pa.array(np.flatnonzero(splits == code)))
            found.setdefault(code, _SplitFigures()).add(members)
    return {SPLITS[code]: found[code].finish() for code in sorted(found)}


class _SplitFigures:
    """The figures of one split so far."""

    def __init__(self) -> None:
        self._values: dict[str, Counter[float]] = {}
        self._waiting: pa.Table | None = None
        self._moments: Moments | None = None
        self._known = True

    def add(self, members: pa.Table) -> None:
        height, width = members["height"].to_numpy(), members["width"].to_numpy()
        self._count("height", height)
        self._count("width", width)
        self._count("aspect", width / height)
        self._count("stored_bytes", members["stored_bytes"].to_numpy())
        waiting = members if self._waiting is None else pa.concat_tables([self._waiting, members])
        while waiting.num_rows >= IMAGES_AT_A_TIME:
            self._join(waiting.slice(0, IMAGES_AT_A_TIME))
            waiting = waiting.slice(IMAGES_AT_A_TIME)
        self._waiting = waiting.combine_chunks()

    def finish(self) -> SplitStatistics:
        """Return the figures of all images."""
        if self._waiting is not None and self._waiting.num_rows:
            self._join(self._waiting)
        aspect = _spread(self._values["aspect"])
        height, width, stored = (_spread(self._values[name]) for name in ("height", "width", "stored_bytes"))
        return SplitStatistics(
            pixels=self._moments.statistics() if self._known and self._moments else None,
            height=(int(height[0]), height[1], int(height[2])),
            width=(int(width[0]), width[1], int(width[2])),
            aspect=(round(aspect[0], DECIMALS), round(aspect[1], DECIMALS), round(aspect[2], DECIMALS)),
            stored_bytes=(int(stored[0]), stored[1], int(stored[2])),
        )

    def _count(self, name: str, values: npt.NDArray[np.generic]) -> None:
        distinct, counts = np.unique(values, return_counts=True)
        counted = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
        self._values.setdefault(name, Counter()).update(counted)

    def _join(self, members: pa.Table) -> None:
        if not self._known:
            return
        pixels = members["height"].to_numpy().astype(np.int64) * members["width"].to_numpy()
        moments = moments_of(members, np.arange(members.num_rows), pixels)
        before = self._moments
        if moments is None or (before is not None and before.mean.shape != moments.mean.shape):
            self._known = False
        elif before is None:
            self._moments = moments
        else:
            before.join(moments)


def _spread(values: Counter[float]) -> tuple[float, float, float]:
    """Return the least, the median and the largest value."""
    ordered = sorted(values)
    ends = list(accumulate(values[value] for value in ordered))
    total = ends[-1]
    low, high = np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right")
    median = (ordered[low] + ordered[high]) / 2
    return float(ordered[0]), float(median), float(ordered[-1])
