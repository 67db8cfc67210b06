"""Figures of the images of each split: pixels, sizes, shapes and bytes, from the facts of each image."""

from __future__ import annotations

from dataclasses import dataclass

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

# Finer than the precision of float32, coarser than changes from the order of a sum.
DECIMALS = 4

IMAGES_AT_A_TIME = 1 << 14


def split_statistics(facts: pa.Table, rows: Rows | Int64, splits: Codes) -> dict[str, SplitStatistics]:
    """Return split -> figures of its images, for the splits that have any.

    Args:
        facts: IMAGE_COLUMNS.
        rows: int32 or int64 [N], row of each record in the facts.
        splits: int8 [N], index into SPLITS of each record.
    """
    found = {}
    for code, split in enumerate(SPLITS):
        members = rows[splits == code]
        if len(members):
            found[split] = _of_one_split(facts, members)
    return found


def _of_one_split(facts: pa.Table, rows: Rows | Int64) -> SplitStatistics:
    height = facts["height"].take(pa.array(rows)).to_numpy()
    width = facts["width"].take(pa.array(rows)).to_numpy()
    aspect = _spread(width / height)
    return SplitStatistics(
        pixels=_pixels(facts, rows, height.astype(np.int64) * width),
        height=_int_spread(height),
        width=_int_spread(width),
        aspect=(round(aspect[0], DECIMALS), round(aspect[1], DECIMALS), round(aspect[2], DECIMALS)),
        stored_bytes=_int_spread(facts["stored_bytes"].take(pa.array(rows)).to_numpy()),
    )


def _spread(values: Numbers) -> tuple[float, float, float]:
    """Return the least, the median and the largest value."""
    return float(values.min()), float(np.median(values)), float(values.max())


def _int_spread(values: Numbers) -> tuple[int, float, int]:
    least, median, largest = _spread(values)
    return int(least), median, int(largest)


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

    def statistics(self) -> ChannelStatistics:
        """Return mean and standard deviation, rounded."""
        return ChannelStatistics(
            num_pixels=self.num_pixels,
            mean=[round(value, DECIMALS) for value in self.mean.tolist()],
            std=[round(value, DECIMALS) for value in np.sqrt(self.squares / self.num_pixels).tolist()],
        )


def _pixels(facts: pa.Table, rows: Rows | Int64, pixels: Int64) -> ChannelStatistics | None:
    """Return mean and standard deviation over all pixels of some images, from the values of each image.

    Args:
        facts: IMAGE_COLUMNS.
        rows: int32 [M], the images.
        pixels: int64 [M], number of pixels of each image.

    Returns:
        None if the figures of an image are not known, or if images differ in their number of channels.
    """
    found: Moments | None = None
    for start in range(0, len(rows), IMAGES_AT_A_TIME):
        part = slice(start, start + IMAGES_AT_A_TIME)
        moments = moments_of(facts, rows[part], pixels[part])
        if moments is None or (found is not None and moments.mean.shape != found.mean.shape):
            return None
        if found is None:
            found = moments
        else:
            found.join(moments)
    if found is None:
        return None
    return found.statistics()


def moments_of(facts: pa.Table, rows: Rows | Int64, pixels: Int64) -> Moments | None:
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
