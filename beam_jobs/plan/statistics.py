"""What the images of each split are like: pixels, sizes, shapes, bytes; from what is known of each image."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.plan.columns import one_chunk
from beam_jobs.plan.splits import Codes
from infra.contract import SPLITS, ChannelStatistics, SplitStatistics

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32] | npt.NDArray[np.int64] | npt.NDArray[np.float64]

# Far below what a float32 can tell, far above what the order of a sum changes.
_DECIMALS = 4


def split_statistics(facts: pa.Table, rows: Int64, splits: Codes) -> dict[str, SplitStatistics]:
    """Split -> its images, for the splits that have any.

    Args:
        facts: IMAGE_COLUMNS.
        rows: int64 [N], row of each record.
        splits: int8 [N], index into SPLITS of each record.
    """
    found = {}
    for code, split in enumerate(SPLITS):
        members = rows[splits == code]
        if len(members):
            found[split] = _of_one_split(facts, members)
    return found


def _of_one_split(facts: pa.Table, rows: Int64) -> SplitStatistics:
    height = facts["height"].take(pa.array(rows)).to_numpy()
    width = facts["width"].take(pa.array(rows)).to_numpy()
    aspect = _spread(width / height)
    return SplitStatistics(
        pixels=_pixels(facts, rows, height.astype(np.int64) * width),
        height=_int_spread(height),
        width=_int_spread(width),
        aspect=(round(aspect[0], _DECIMALS), round(aspect[1], _DECIMALS), round(aspect[2], _DECIMALS)),
        stored_bytes=_int_spread(facts["stored_bytes"].take(pa.array(rows)).to_numpy()),
    )


def _spread(values: Numbers) -> tuple[float, float, float]:
    """Least, median, largest."""
    return float(values.min()), float(np.median(values)), float(values.max())


def _int_spread(values: Numbers) -> tuple[int, float, int]:
    least, median, largest = _spread(values)
    return int(least), median, int(largest)


def _pixels(facts: pa.Table, rows: Int64, pixels: Int64) -> ChannelStatistics | None:
    """Mean and standard deviation over all pixels of some images, from those of each image.

    The variance of a union is the mean of the variances within its parts and the variance between their
    means: E[s² + m²] - E[m]², parts weighing by their pixels.

    Args:
        facts: IMAGE_COLUMNS.
        rows: int64 [M], the images.
        pixels: int64 [M], of each.

    Returns:
        None where the figures of an image are not known, or images differ in their number of channels.
    """
    means, stds = _channels(facts["pixel_mean"], rows), _channels(facts["pixel_std"], rows)
    if means is None or stds is None or means.shape != stds.shape:
        return None
    total = int(pixels.sum())
    weights = (pixels / total)[:, np.newaxis]
    mean = (weights * means).sum(axis=0)
    # Around the mean found, as a difference of two large squares would lose what a flat data set has.
    variance = (weights * (np.square(stds) + np.square(means - mean))).sum(axis=0)
    return ChannelStatistics(
        num_pixels=total,
        mean=[round(value, _DECIMALS) for value in mean.tolist()],
        std=[round(value, _DECIMALS) for value in np.sqrt(variance).tolist()],
    )


def _channels(column: pa.ChunkedArray, rows: Int64) -> Float64 | None:
    """A column of lists of one length as float64 [M, channels]; None where it is no such column."""
    lists = one_chunk(column.take(pa.array(rows)))
    if lists.null_count:
        return None
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        return None
    return np.asarray(lists.flatten().to_numpy(zero_copy_only=False), np.float64).reshape(-1, lengths[0])
