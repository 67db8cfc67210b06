"""Figures of the images of each split: pixels, sizes, shapes and bytes, from the facts of each image.

``split_statistics`` has all facts in memory; ``statistics_of`` takes the same facts, a table after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import Codes, Rows
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.infra.format.contract import SPLITS, ChannelStatistics, SplitStatistics

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32] | npt.NDArray[np.int64] | npt.NDArray[np.float64]

Spread = tuple[float, float, float]  # least, median, largest

# Finer than the precision of float32, coarser than changes from the order of a sum.
DECIMALS = 4
_DIGITS = 7  # of float32, whose values may all be small

IMAGES_AT_A_TIME = 1 << 14


def split_statistics(
    facts: pa.Table, rows: Rows | Int64, splits: Codes, of_float: bool = False
) -> dict[str, SplitStatistics]:
    """Return split -> figures of its images, for the splits that have any.

    Args:
        facts: IMAGE_COLUMNS.
        rows: int32 or int64 [N], row of each record in the facts.
        splits: int8 [N], index into SPLITS of each record.
        of_float: the samples may be float32.
    """
    found = {}
    for code, split in enumerate(SPLITS):
        members = rows[splits == code]
        if len(members):
            found[split] = _of_one_split(facts, members, of_float)
    return found


def _of_one_split(facts: pa.Table, rows: Rows | Int64, of_float: bool) -> SplitStatistics:
    height = facts["height"].take(pa.array(rows)).to_numpy()
    width = facts["width"].take(pa.array(rows)).to_numpy()
    return _figures(
        _pixels(facts, rows, height.astype(np.int64) * width, of_float),
        _spread(height),
        _spread(width),
        _spread(width / height),
        _spread(facts["stored_bytes"].take(pa.array(rows)).to_numpy()),
    )


def _figures(
    pixels: ChannelStatistics | None, height: Spread, width: Spread, aspect: Spread, stored: Spread
) -> SplitStatistics:
    return SplitStatistics(
        pixels=pixels,
        height=(int(height[0]), height[1], int(height[2])),
        width=(int(width[0]), width[1], int(width[2])),
        aspect=(round(aspect[0], DECIMALS), round(aspect[1], DECIMALS), round(aspect[2], DECIMALS)),
        stored_bytes=(int(stored[0]), stored[1], int(stored[2])),
    )


def _spread(values: Numbers) -> Spread:
    """Return the least, the median and the largest value."""
    return float(values.min()), float(np.median(values)), float(values.max())


@dataclass
class Moments:
    """Mean and sum of squared deviations of the pixels so far, a value a channel.

    Two sets are joined after Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
    computing sample variances", 1979. Subtracting two large squares would lose the variance of flat images.
    """

    num_pixels: int
    mean: Float64
    squares: Float64

    def join(self, other: Moments) -> None:
        """Add the pixels of another set."""
        total = self.num_pixels + other.num_pixels
        apart = other.mean - self.mean
        self.mean = self.mean + apart * (other.num_pixels / total)
        self.squares = self.squares + other.squares + apart**2 * (self.num_pixels / total * other.num_pixels)
        self.num_pixels = total

    def statistics(self, of_float: bool) -> ChannelStatistics:
        """Return mean and standard deviation, rounded."""
        std = np.sqrt(self.squares / self.num_pixels)
        return ChannelStatistics(
            num_pixels=self.num_pixels,
            mean=[_rounded(value, of_float) for value in self.mean.tolist()],
            std=[_rounded(value, of_float) for value in std.tolist()],
        )


def _rounded(value: float, of_float: bool) -> float:
    return float(f"{value:.{_DIGITS}g}") if of_float else round(value, DECIMALS)


def _pixels(facts: pa.Table, rows: Rows | Int64, pixels: Int64, of_float: bool) -> ChannelStatistics | None:
    """Return mean and standard deviation over all pixels of some images, from the values of each image.

    Args:
        facts: IMAGE_COLUMNS.
        rows: int32 [M], the images.
        pixels: int64 [M], number of pixels of each image.
        of_float: the samples may be float32.

    Returns:
        None if the figures of an image are not known, or if images differ in their number of channels.
    """
    found: Moments | None = None
    for start in range(0, len(rows), IMAGES_AT_A_TIME):
        part = slice(start, start + IMAGES_AT_A_TIME)
        moments = _moments_of(facts, rows[part], pixels[part])
        if moments is None or (found is not None and moments.mean.shape != found.mean.shape):
            return None
        if found is None:
            found = moments
        else:
            found.join(moments)
    if found is None:
        return None
    return found.statistics(of_float)


def _moments_of(facts: pa.Table, rows: Rows | Int64, pixels: Int64) -> Moments | None:
    """Return the moments of some images: the variance within each, and that between their means."""
    means, stds = _channels(facts["pixel_mean"], rows), _channels(facts["pixel_std"], rows)
    if means is None or stds is None or means.shape != stds.shape:
        return None
    total = int(pixels.sum())
    mean = (pixels[:, np.newaxis] * means).sum(axis=0) / total
    squares = (pixels[:, np.newaxis] * (np.square(stds) + np.square(means - mean))).sum(axis=0)
    return Moments(total, mean, squares)


def _channels(column: pa.ChunkedArray, rows: Rows | Int64) -> Float64 | None:
    """Return a column of lists of equal length as float64 [M, channels]; None if it is no such column."""
    lists = one_chunk(column.take(pa.array(rows)))
    if lists.null_count:
        return None
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        return None
    return np.asarray(lists.flatten().to_numpy(zero_copy_only=False), np.float64).reshape(-1, lengths[0])


def statistics_of(figures: Iterable[pa.Table], of_float: bool = False) -> dict[str, SplitStatistics]:
    """Return split -> figures of its images, as ``split_statistics`` (shardmill.beam_jobs.plan) does.

    Args:
        figures: height, width, stored_bytes, pixel_mean, pixel_std and split of the records, in order.
        of_float: the samples may be float32.
    """
    found: dict[int, _SplitFigures] = {}
    for table in figures:
        splits = table["split"].to_numpy()
        for code in np.unique(splits).tolist():
            members = table.take(pa.array(np.flatnonzero(splits == code)))
            found.setdefault(code, _SplitFigures()).add(members)
    return {SPLITS[code]: found[code].finish(of_float) for code in sorted(found)}


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

    def finish(self, of_float: bool) -> SplitStatistics:
        """Return the figures of all images."""
        if self._waiting is not None and self._waiting.num_rows:
            self._join(self._waiting)
        pixels = self._moments.statistics(of_float) if self._known and self._moments else None
        names = ("height", "width", "aspect", "stored_bytes")
        return _figures(pixels, *(_spread_of_counted(self._values[name]) for name in names))

    def _count(self, name: str, values: npt.NDArray[np.generic]) -> None:
        distinct, counts = np.unique(values, return_counts=True)
        counted = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
        self._values.setdefault(name, Counter()).update(counted)

    def _join(self, members: pa.Table) -> None:
        if not self._known:
            return
        pixels = members["height"].to_numpy().astype(np.int64) * members["width"].to_numpy()
        moments = _moments_of(members, np.arange(members.num_rows), pixels)
        before = self._moments
        if moments is None or (before is not None and before.mean.shape != moments.mean.shape):
            self._known = False
        elif before is None:
            self._moments = moments
        else:
            before.join(moments)


def _spread_of_counted(values: Counter[float]) -> Spread:
    """Return the least, the median and the largest value."""
    ordered = sorted(values)
    ends = list(accumulate(values[value] for value in ordered))
    total = ends[-1]
    low, high = np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right")
    median = (ordered[low] + ordered[high]) / 2
    return float(ordered[0]), float(median), float(ordered[-1])
