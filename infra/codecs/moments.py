"""Mean and standard deviation of each channel of a picture, of its pixels or of its planes.

All sums are of integers, so they are exact and do not depend on the order of summing, nor on the machine.
OpenCV's ``norm`` gives sums of squares, and of squared differences, in about 2 µs a plane; some of its builds
square a root for that, so what it gives is rounded to the integer that it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import cv2

from infra.codecs.formats import Pixels
from infra.codecs.resize import resize
from infra.codecs.turbojpeg import Planes

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

# Of JFIF 1.02: what chroma adds to luma. R = Y + 1.402 Cr', G = Y - 0.344 Cb' - 0.714 Cr', B = Y + 1.772 Cb'.
_CB = (0.0, -0.344136, 1.772)
_CR = (1.402, -0.714136, 0.0)


class Sums(NamedTuple):
    """Sums over the planes of a picture, from which its statistics follow.

    Attributes:
        luma_size: pixels.
        luma, luma_squares: sums over all of luma.
        size: pixels of halved luma; 0 where the picture is grey and the rest is left empty.
        totals, squares: over halved luma, cb, cr.
        products: of halved luma with cb, halved luma with cr, cb with cr.
    """

    luma_size: int
    luma: int
    luma_squares: int
    size: int = 0
    totals: Sequence[int] = ()
    squares: Sequence[int] = ()
    products: Sequence[int] = ()


def pixel_statistics(pixels: Pixels) -> Statistics:
    """(mean, standard deviation) of each channel; ``pixels``: uint8 [H, W, C]."""
    mean, deviation = cv2.meanStdDev(pixels)
    return tuple(mean[:, 0].tolist()), tuple(deviation[:, 0].tolist())


def plane_statistics(planes: Planes, halved: Pixels) -> Statistics:
    """(mean, standard deviation) of red, green and blue, or of grey, without making pixels.

    Args:
        planes: grey, or with chroma samples of 2×2 pixels.
        halved: luma averaged over 2×2 pixels (``halve``).
    """
    luma = planes.y.size, _sum(planes.y), _squares(planes.y)
    if planes.cb is None or planes.cr is None:
        return statistics_of(Sums(*luma))
    height, width = halved.shape
    # A row or column that is left over by halving is left out of the chroma too.
    parts = halved, planes.cb[:height, :width], planes.cr[:height, :width]
    squares = [_squares(part) for part in parts]
    products = [
        (squares[one] + squares[other] - _differences(parts[one], parts[other])) // 2
        for one, other in ((0, 1), (0, 2), (1, 2))
    ]
    return statistics_of(Sums(*luma, halved.size, [_sum(part) for part in parts], squares, products))


def statistics_of(sums: Sums) -> Statistics:
    """(mean, standard deviation) of red, green and blue, or of grey.

    The variance of a sum is that of its parts and twice their covariance. Chroma is taken as it lies in the
    planes, and luma's covariance with it at that size; what decoding clips to 0 to 255 is not clipped.
    """
    mean, variance = _moments(sums.luma, sums.luma_squares, sums.luma_size)
    if not sums.size:
        return (mean,), (math.sqrt(variance),)
    size = sums.size
    mean_y, mean_cb, mean_cr = (total / size for total in sums.totals)
    _, var_cb = _moments(sums.totals[1], sums.squares[1], size)
    _, var_cr = _moments(sums.totals[2], sums.squares[2], size)
    y_cb, y_cr, cb_cr = sums.products
    with_cb, with_cr = y_cb / size - mean_y * mean_cb, y_cr / size - mean_y * mean_cr
    between = cb_cr / size - mean_cb * mean_cr
    means, deviations = [], []
    for a, b in zip(_CB, _CR, strict=True):
        means.append(mean + a * (mean_cb - 128) + b * (mean_cr - 128))
        spread = variance + a * a * var_cb + b * b * var_cr
        spread += 2 * (a * with_cb + b * with_cr + a * b * between)
        deviations.append(math.sqrt(max(0.0, spread)))
    return tuple(means), tuple(deviations)


def halve(plane: Pixels) -> Pixels:
    """Average over 2×2 pixels; the last row or column of an odd side is left out. uint8 [H, W]."""
    height, width = plane.shape
    if height < 2 or width < 2:
        return resize(plane, (max(1, height // 2), max(1, width // 2)))
    even = plane[: height & ~1, : width & ~1]
    # Of exactly half the size OpenCV has a vectorised kernel, ten times as fast as of any other.
    return cast(Pixels, cv2.resize(even, (width // 2, height // 2), interpolation=cv2.INTER_AREA))


def _sum(plane: Pixels) -> int:
    return round(cv2.sumElems(plane)[0])


def _squares(plane: Pixels) -> int:
    return round(cv2.norm(plane, cv2.NORM_L2SQR))


def _differences(one: Pixels, other: Pixels) -> int:
    return round(cv2.norm(one, other, cv2.NORM_L2SQR))


def _moments(total: float, squares: float, size: int) -> tuple[float, float]:
    mean = total / size
    return mean, max(0.0, squares / size - mean * mean)
