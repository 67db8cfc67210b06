"""Compute mean and standard deviation of each channel, from pixels or from planes.

All sums are sums of integers, so they are exact on every machine, in whatever order they are added. OpenCV's
``norm`` returns sums of squares, and of squared differences, in about 2 µs a plane. Some of its builds square
a root for that, so the result is rounded to the nearest integer.
"""

from __future__ import annotations

import math
from typing import cast

import cv2

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.codecs.jpeg.turbojpeg import Planes
from shardmill.infra.codecs.resize import resize

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

# JFIF 1.02: R = Y + 1.402 Cr', G = Y - 0.344 Cb' - 0.714 Cr', B = Y + 1.772 Cb'.
_CB = (0.0, -0.344136, 1.772)
_CR = (1.402, -0.714136, 0.0)


def pixel_statistics(pixels: Pixels) -> Statistics:
    """Return mean and standard deviation of each channel of pixels, uint8 [H, W, C]."""
    mean, deviation = cv2.meanStdDev(pixels)
    return tuple(mean[:, 0].tolist()), tuple(deviation[:, 0].tolist())


def plane_statistics(planes: Planes, halved: Pixels) -> Statistics:
    """Return mean and standard deviation of red, green and blue, or of grey, without converting to pixels.

    The variance of a sum is the sum of the variances and twice the covariance. Chroma has the size of its
    planes, and its covariance with luma is taken at that size. Values are not clipped to 0 to 255.

    Args:
        planes: grey, or with chroma samples of 2×2 pixels.
        halved: luma averaged over 2×2 pixels (``halve``).
    """
    mean = _sum(planes.y) / planes.y.size
    variance = _variance(_squares(planes.y), planes.y.size, mean)
    if planes.cb is None or planes.cr is None:
        return (mean,), (math.sqrt(variance),)
    height, width = halved.shape
    # Halving leaves out the last row or column of an odd side, so chroma leaves it out too.
    parts = halved, planes.cb[:height, :width], planes.cr[:height, :width]
    size, squares = halved.size, [_squares(part) for part in parts]
    part_means = [_sum(part) / size for part in parts]
    _, mean_cb, mean_cr = part_means
    var_cb, var_cr = (_variance(squares[at], size, part_means[at]) for at in (1, 2))

    def covariance(one: int, other: int) -> float:
        # x·y is half of x² + y² - (x - y)².
        products = (squares[one] + squares[other] - _differences(parts[one], parts[other])) // 2
        return products / size - part_means[one] * part_means[other]

    with_cb, with_cr, between = covariance(0, 1), covariance(0, 2), covariance(1, 2)
    means, deviations = [], []
    for a, b in zip(_CB, _CR, strict=True):
        means.append(mean + a * (mean_cb - 128) + b * (mean_cr - 128))
        spread = variance + a * a * var_cb + b * b * var_cr
        spread += 2 * (a * with_cb + b * with_cr + a * b * between)
        deviations.append(math.sqrt(max(0.0, spread)))
    return tuple(means), tuple(deviations)


def halve(plane: Pixels) -> Pixels:
    """Average a plane (uint8 [H, W]) over 2×2 pixels, without the last row or column of an odd side."""
    height, width = plane.shape
    if height < 2 or width < 2:
        return resize(plane, (max(1, height // 2), max(1, width // 2)))
    even = plane[: height & ~1, : width & ~1]
    # OpenCV's kernel for exactly half the size is vectorised, and ten times as fast as any other.
    return cast(Pixels, cv2.resize(even, (width // 2, height // 2), interpolation=cv2.INTER_AREA))


def _sum(plane: Pixels) -> int:
    return round(cv2.sumElems(plane)[0])


def _squares(plane: Pixels) -> int:
    return round(cv2.norm(plane, cv2.NORM_L2SQR))


def _differences(one: Pixels, other: Pixels) -> int:
    return round(cv2.norm(one, other, cv2.NORM_L2SQR))


def _variance(squares: int, size: int, mean: float) -> float:
    return max(0.0, squares / size - mean * mean)
