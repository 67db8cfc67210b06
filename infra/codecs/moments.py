"""Mean and standard deviation of each channel of a picture, of its pixels or of its planes.

All sums are of integers, so they are exact and do not depend on the order of summing, nor on the machine.
OpenCV's ``norm`` gives sums of squares, and of squared differences, in about 2 µs a plane.
"""

from __future__ import annotations

import math
from typing import Any, cast

import cv2

from infra.codecs.formats import Pixels
from infra.codecs.resize import resize
from infra.codecs.turbojpeg import Planes

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

# Of JFIF 1.02: what chroma adds to luma. R = Y + 1.402 Cr', G = Y - 0.344 Cb' - 0.714 Cr', B = Y + 1.772 Cb'.
_CB = (0.0, -0.344136, 1.772)
_CR = (1.402, -0.714136, 0.0)


def pixel_statistics(pixels: Pixels) -> Statistics:
    """(mean, standard deviation) of each channel; ``pixels``: uint8 [H, W, C]."""
    mean, deviation = cv2.meanStdDev(pixels)
    return tuple(mean[:, 0].tolist()), tuple(deviation[:, 0].tolist())


def plane_statistics(planes: Planes, halved: Pixels) -> Statistics:
    """(mean, standard deviation) of red, green and blue, or of grey, without making pixels.

    The variance of a sum is that of its parts and twice their covariance. Chroma is taken as it lies in the
    planes, and luma's covariance with it at that size; what decoding clips to 0 to 255 is not clipped.

    Args:
        planes: grey, or with chroma samples of 2×2 pixels.
        halved: luma averaged over 2×2 pixels (``halve``).
    """
    mean, variance = _moments(_sum(planes.y), _squares(planes.y), planes.y.size)
    if planes.cb is None or planes.cr is None:
        return (mean,), (math.sqrt(variance),)
    height, width = halved.shape
    # A row or column that is left over by halving is left out of the chroma too.
    cb, cr = planes.cb[:height, :width], planes.cr[:height, :width]
    size = halved.size
    sums = _sum(halved), _sum(cb), _sum(cr)
    squares = _squares(halved), _squares(cb), _squares(cr)
    (_, _), (mean_cb, var_cb), (mean_cr, var_cr) = (
        _moments(total, square, size) for total, square in zip(sums, squares, strict=True)
    )

    def covariance(one: int, other: int, a: Pixels, b: Pixels) -> float:
        product = (squares[one] + squares[other] - cv2.norm(a, b, cv2.NORM_L2SQR)) / 2
        return float(product / size - sums[one] / size * (sums[other] / size))

    with_cb, with_cr = covariance(0, 1, halved, cb), covariance(0, 2, halved, cr)
    between = covariance(1, 2, cb, cr)
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


def _sum(plane: Pixels) -> Any:
    return cv2.sumElems(plane)[0]


def _squares(plane: Pixels) -> Any:
    return cv2.norm(plane, cv2.NORM_L2SQR)


def _moments(total: float, squares: float, size: int) -> tuple[float, float]:
    mean = total / size
    return mean, max(0.0, squares / size - mean * mean)
