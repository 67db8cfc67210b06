"""Measure what tells a bad picture: brightness, information, sharpness and borders of its luma.

All is measured on the picture as it is stored, without the canvas that ``image.resize = "pad"`` puts around
it. Luma is halved (2×2 pixels averaged) until its shorter side is below 256 pixels for sharpness, and below
128 for all else, so that figures of large and small images compare.

**Borders** are bars of one shade along a side, which end at a straight line: the line behind them is of other
shades in most of its length. So the plain background of a studio is none. All else is measured inside them.

**Sharpness** is E₁ ÷ (E₂ + 1/2): E₁ is the mean squared difference of neighbours in luma, rows and columns
together, and E₂ that of the same luma halved once more. Halving doubles the slopes of a smooth picture, so a
blurred one has 1/4. An ideal edge has 1/2, noise 4. Contrast and brightness cancel out; the half (grey levels
squared) keeps the rounding to grey levels from passing for detail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import cv2
import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.codecs.geometry import halve

Float32 = npt.NDArray[np.float32]

LEAST_SIDE = 16  # below, a picture has too few pixels to judge
_MOST_SHARP = 16.0
_DECIMALS = 3  # so that the least bits of a logarithm do not reach the index
# Grey levels: how far a bar may be from its shade, and how near the line behind it. Shares of such lines.
_TOLERANCE, _APART = 8, 24
_OF_BAR, _BEHIND_BAR = 0.98, 0.5
_DEEPEST = 0.45  # of a side


class Quality(NamedTuple):  # a frozen dataclass is made in twice the time
    """What is measured of a picture; the columns of the index with these names say what each is.

    Attributes:
        counts: of each grey level: float32 [256]. A block makes columns of them (``of_levels``).
        is_bright: whether grey levels say how bright the picture is. Those of stretched samples do not.
    """

    counts: Float32
    is_bright: bool
    luma_sharpness: float | None
    border_share: float


def measure_quality(
    levels: Sequence[Pixels], *, is_bright: bool = True, may_have_bars: bool = True
) -> Quality:
    """Measure a picture.

    Args:
        levels: its luma, uint8 [H, W], each half the size of the one before, down to a shorter side below
            128 pixels.
        is_bright: see ``Quality``.
        may_have_bars: whether the outermost line of some side is of one shade.
    """
    smallest = levels[-1]
    # What is halved to less than 128 was below 256.
    fine, coarse = (levels[-2], smallest) if len(levels) > 1 else (smallest, None)
    border = 0.0
    may_have_bars &= min(smallest.shape) >= LEAST_SIDE
    if may_have_bars and (bars := _bars(smallest)) is not None:
        (top, bottom), (left, right) = bars
        inside = (bottom - top) * (right - left)
        border = 1 - inside / smallest.size
        scale = 1 if fine is smallest else 2
        # A line more: where a bar ends, halving has mixed it with the picture.
        edge = 1 if min(bottom - top, right - left) > 4 else 0
        top, bottom, left, right = top + edge, bottom - edge, left + edge, right - edge
        smallest, coarse = smallest[top:bottom, left:right], None
        fine = fine[top * scale : bottom * scale, left * scale : right * scale]
    counts = cast(Float32, cv2.calcHist((smallest,), [0], None, [256], [0, 256]))
    return Quality(counts, is_bright, _sharpness(fine, coarse), float(round(border, _DECIMALS)))


# n·log₂ n of each count: logarithms would take half of the time.
_TIMES_LOGARITHM = np.arange(1 << 14) * np.log2(np.maximum(np.arange(1 << 14), 1))


_PICTURES_AT_A_TIME = 16  # whose arrays stay in the processor's cache


def of_levels(measured: Sequence[Quality]) -> dict[str, list[int | None] | list[float]]:
    """Return the columns that pictures have by their grey levels, a value for each picture."""
    low: list[int | None] = []
    high: list[int | None] = []
    entropy: list[float] = []
    for start in range(0, len(measured), _PICTURES_AT_A_TIME):
        part = measured[start : start + _PICTURES_AT_A_TIME]
        counts = np.stack([one.counts for one in part]).reshape(-1, 256).astype(np.int64)
        below = np.cumsum(counts, axis=1)
        total = below[:, -1:]
        low += (below < 0.05 * total).sum(axis=1).tolist()
        high += (below < 0.99 * total).sum(axis=1).tolist()
        if total.max() < len(_TIMES_LOGARITHM):
            products = _TIMES_LOGARITHM[counts]
        else:
            products = counts * np.log2(np.maximum(counts, 1))
        bits = np.log2(total[:, 0]) - products.sum(axis=1) / total[:, 0]
        entropy += np.maximum(bits, 0).round(_DECIMALS).tolist()
    for values in (low, high):
        values[:] = [value if one.is_bright else None for value, one in zip(values, measured, strict=True)]
    return {"luma_p5": low, "luma_p99": high, "luma_entropy": entropy}


def _sharpness(fine: Pixels, coarse: Pixels | None) -> float | None:
    """Return the sharpness of luma; None without any detail, or of too few pixels.

    Args:
        fine: uint8 [H, W].
        coarse: ``halve(fine)`` if the caller has it.
    """
    if min(fine.shape) < 2 * LEAST_SIDE:
        return None
    detail = _roughness(fine)
    rest = _roughness(halve(fine) if coarse is None else coarse)
    return round(min(_MOST_SHARP, detail / (rest + 0.5)), _DECIMALS) if detail else None


def _roughness(luma: Pixels) -> float:
    """Return the mean squared difference of neighbours, of rows and columns together."""
    rows = round(cv2.norm(luma[1:], luma[:-1], cv2.NORM_L2SQR))
    columns = round(cv2.norm(luma[:, 1:], luma[:, :-1], cv2.NORM_L2SQR))
    return (rows + columns) / luma.size


def _bars(luma: Pixels) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return first and end of the rows, and of the columns, inside the bars; None if there are none."""
    height, width = luma.shape
    top, bottom = _bar(luma), height - _bar(luma[::-1])
    inside = luma[top:bottom].T
    left, right = _bar(inside), width - _bar(inside[::-1])
    return None if (top, bottom, left, right) == (0, height, 0, width) else ((top, bottom), (left, right))


def _bar(lines: Pixels) -> int:
    """Count the lines of a bar at the first line; 0 if there is none."""
    least, most, _, _ = cv2.minMaxLoc(lines[:1])
    if most - least > 2 * _TOLERANCE:
        return 0
    shade = round((least + most) / 2)
    lines = np.ascontiguousarray(lines[: int(len(lines) * _DEEPEST) + 2])
    inside = cv2.inRange(lines, shade - _TOLERANCE, shade + _TOLERANCE)
    ends = np.flatnonzero(
        cv2.reduce(inside, 1, cv2.REDUCE_SUM, dtype=cv2.CV_32S) < _OF_BAR * 255 * lines.shape[1]
    )
    if not len(ends) or ends[0] + 1 >= len(lines):
        return 0
    # The line at the end of a bar may be half of it, by halving.
    depth = int(ends[0])
    behind = np.abs(lines[depth + 1].astype(np.int16) - shade)
    return depth if (behind <= _APART).mean() <= _BEHIND_BAR else 0
