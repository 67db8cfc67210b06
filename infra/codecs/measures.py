"""Measure a decoded image: mean and deviation of each channel, its perceptual hash, its look and quality.

**Moments.** All sums are sums of integers, so they are exact on every machine, in whatever order they are
added. OpenCV's ``norm`` returns sums of squares, and of squared differences, in about 2 µs a plane. Some of
its builds square a root for that, so the result is rounded to the nearest integer.

**Perceptual hash**: 64 bits that survive scaling, another compression and slight retouching. This is the DCT
hash of Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions" (2010), section 3.2.1, as
in the pHash library. Luma is averaged to 32×32 and goes through a two-dimensional cosine transform. Each
coefficient with frequencies 1 to 8 both ways gives a bit: whether it is above their median.

The table of the transform is rounded to integers, so a hash is the same on every machine, in whatever order
the sums are added. The thumbnails of a block are transformed together.

**Look**: the coarse structure from which copies are recognised. It holds the lowest 14×14 coefficients of the
two-dimensional cosine transform of a thumbnail (luma, 32×32). From them one gets the coefficients of a
mirrored or turned image by signs and transposition, and nearly those of a cut image by a linear map. So one
look serves to find all of these copies (``shardmill.beam_jobs.plan.similarity``).

A coefficient c (grey levels, of the transform with orthonormal rows) is stored as the nearest integer to
±4·√|c|, from -127 to 127, in a byte. The mean is stored as 0: how bright an image is does not matter.
Thumbnails and the table of the transform are integers, and a square root is exact to the last bit, so a look
is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import cv2
import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.arrays import kind_of
from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.codecs.geometry import Geometry, Samples, halve, resize
from shardmill.infra.codecs.jpeg.turbojpeg import Planes
from shardmill.infra.codecs.quality import Quality, measure_quality

Float64 = npt.NDArray[np.float64]
Statistics = tuple[tuple[float, ...], tuple[float, ...]]

# JFIF 1.02: R = Y + 1.402 Cr', G = Y - 0.344 Cb' - 0.714 Cr', B = Y + 1.772 Cb'.
_CB = (0.0, -0.344136, 1.772)
_CR = (1.402, -0.714136, 0.0)


def pixel_statistics(pixels: Pixels) -> Statistics:
    """Return mean and standard deviation of each channel of pixels, uint8 [H, W, C]."""
    mean, deviation = cv2.meanStdDev(pixels)
    return tuple(mean[:, 0].tolist()), tuple(deviation[:, 0].tolist())


def sample_statistics(pixels: Samples) -> Statistics:
    """Return mean and standard deviation of each channel, uint8, uint16 or float32 [H, W, C], in float64."""
    planes = [pixels[:, :, channel].astype(np.float64) for channel in range(pixels.shape[2])]
    return tuple(float(plane.mean()) for plane in planes), tuple(float(plane.std()) for plane in planes)


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
        differences = round(cv2.norm(parts[one], parts[other], cv2.NORM_L2SQR))
        products = (squares[one] + squares[other] - differences) // 2
        return products / size - part_means[one] * part_means[other]

    with_cb, with_cr, between = covariance(0, 1), covariance(0, 2), covariance(1, 2)
    means, deviations = [], []
    for a, b in zip(_CB, _CR, strict=True):
        means.append(mean + a * (mean_cb - 128) + b * (mean_cr - 128))
        spread = variance + a * a * var_cb + b * b * var_cr
        spread += 2 * (a * with_cb + b * with_cr + a * b * between)
        deviations.append(math.sqrt(max(0.0, spread)))
    return tuple(means), tuple(deviations)


def _sum(plane: Pixels) -> int:
    return round(cv2.sumElems(plane)[0])


def _squares(plane: Pixels) -> int:
    return round(cv2.norm(plane, cv2.NORM_L2SQR))


def _variance(squares: int, size: int, mean: float) -> float:
    return max(0.0, squares / size - mean * mean)


_THUMBNAIL_SIDE = 32
LOOK_SIDE, ROOT_UNIT = 14, 4  # the same as in shardmill.infra.format.contract
_HASH_SIDE = 8
_TABLE_UNIT = 1 << 10
# Halving is cheap, averaging by other ratios is not. So luma is halved down to this side (pixels) first.
_HALVED_TO = 128
# Grey levels, of the transform with orthonormal rows. If half of the coefficients are below this, rounding to
# grey levels decides the bits. Such a blank picture has no hash, so it does not resemble other blank ones.
_LEAST_MEDIAN = 0.5


def _table() -> Float64:
    """Return the one-dimensional transform times ``_TABLE_UNIT``: float64 [14 frequencies, 32]."""
    places = (2 * np.arange(_THUMBNAIL_SIDE) + 1) * np.pi / (2 * _THUMBNAIL_SIDE)
    rows = np.sqrt(2 / _THUMBNAIL_SIDE) * np.cos(np.arange(LOOK_SIDE)[:, np.newaxis] * places)
    rows[0] /= np.sqrt(2)
    return np.asarray(np.rint(rows * _TABLE_UNIT))


_LOOK_TABLE = _table()
_HASH_TABLE = _LOOK_TABLE[1 : _HASH_SIDE + 1]  # frequencies 1 to 8


def _transformed(thumbnails: npt.NDArray[np.uint8], table: Float64) -> Float64:
    """Return the two-dimensional transform of each thumbnail, times ``_TABLE_UNIT`` squared.

    Args:
        thumbnails: uint8 [N, 32, 32].
        table: float64 [F, 32], rows of ``_table``.

    Returns:
        float64 [N, F vertical frequencies, F horizontal frequencies].
    """
    # A product for each thumbnail: for one of all, OpenBLAS would wake threads, which stay awake for a while
    # and take a tenth of the processor's time. Sums stay below 2**53, so they are exact.
    return np.asarray(table @ (thumbnails.astype(np.float64) @ table.T))


def thumbnail(luma: Pixels) -> Pixels:
    """Shrink luma, uint8 [H, W], upright, to the thumbnail that is hashed: uint8 [32, 32]."""
    return _smallest(_levels(luma))


def _levels(luma: Pixels, halved: Pixels | None = None) -> list[Pixels]:
    """Return luma, uint8 [H, W], and what halving it down makes of it; ``halved`` is the first, if known."""
    levels = [luma]
    while min(levels[-1].shape) >= _HALVED_TO:
        levels.append(halve(levels[-1]) if halved is None else halved)
        halved = None
    return levels


def _smallest(levels: Sequence[Pixels]) -> Pixels:
    return resize(levels[-1], (_THUMBNAIL_SIDE, _THUMBNAIL_SIDE))


def perceptual_hashes(thumbnails: npt.NDArray[np.uint8]) -> list[int | None]:
    """Return the hash of each thumbnail, None for blank ones.

    Args:
        thumbnails: uint8 [N, 32, 32].
    """
    if not len(thumbnails):
        return []
    coefficients = _transformed(thumbnails, _HASH_TABLE).reshape(-1, _HASH_SIDE**2)
    bits = coefficients > np.median(coefficients, axis=1, keepdims=True)
    hashes = np.packbits(bits, axis=1).view(">u8")[:, 0].tolist()
    blank = np.median(np.abs(coefficients), axis=1) < _LEAST_MEDIAN * _TABLE_UNIT**2
    return [None if empty else value for value, empty in zip(hashes, blank.tolist(), strict=True)]


_LARGEST = 127
# An image needs so many coefficients of its own. A blank one, or a smooth run of shades, has fewer, and would
# resemble every other one of its kind.
_LEAST_SPREAD = 12
# Grey levels: deviation of the outermost line of a border, and mean distance of the others from that shade.
_SHADE_DEVIATION = 4
_SHADE_TOLERANCE = 6


def looks(thumbnails: npt.NDArray[np.uint8]) -> list[bytes | None]:
    """Return the look of each thumbnail; None for images without enough structure to tell them apart.

    Args:
        thumbnails: uint8 [N, 32, 32].

    Returns:
        N times 196 bytes: int8 [14 rows of vertical frequencies, 14 horizontal frequencies].
    """
    if not len(thumbnails):
        return []
    coefficients = _transformed(thumbnails, _LOOK_TABLE) / _TABLE_UNIT**2
    coefficients[:, 0, 0] = 0
    roots = np.minimum(np.rint(ROOT_UNIT * np.sqrt(np.abs(coefficients))), _LARGEST)
    stored = (np.sign(coefficients) * roots).astype(np.int8)
    told = spread(stored) >= _LEAST_SPREAD
    return [one.tobytes() if tells else None for one, tells in zip(stored, told.tolist(), strict=True)]


def spread(stored: npt.NDArray[np.int8]) -> Float64:
    """Return over how many coefficients the structure of each image is spread: float64 [N], 0 to 195.

    It is (Σa)² ÷ Σa² of a = |c|: the number of coefficients if they are equally large (the participation
    ratio). Coefficients below half a grey level are left out, since rounding decides about them.

    Args:
        stored: int8 [N, 14, 14].
    """
    sizes = np.square(stored.reshape(len(stored), -1).astype(np.float64)) / ROOT_UNIT**2
    sizes[sizes < 0.5] = 0
    squares = np.square(sizes).sum(axis=1)
    return np.asarray(np.square(sizes.sum(axis=1)) / np.where(squares == 0, 1, squares))


def without_border(luma: Pixels) -> Pixels | None:
    """Cut off a border of one shade; None if there is none, or hardly anything else.

    A line belongs to the border if its pixels lie near the shade of the outermost line on the average. At
    most a quarter is cut off at each side.

    Args:
        luma: uint8 [H, W], upright.

    Returns:
        A view of what is inside the border.
    """
    return _inside(luma, _border(luma))


_Border = tuple[int | None, int | None, int | None, int | None]  # lines at the top, bottom, left and right
_NO_BORDER: _Border = (None, None, None, None)


def _inside(luma: Pixels, border: _Border) -> Pixels | None:
    top, bottom, left, right = (lines or 0 for lines in border)
    if not (top or bottom or left or right):
        return None
    height, width = luma.shape
    return luma[top : height - bottom, left : width - right]


def _border(luma: Pixels) -> _Border:
    """Count the lines of a border at each side; None where the outermost one is not of one shade."""
    height, width = luma.shape
    top = _border_lines(luma[: height // 4])
    bottom = _border_lines(luma[::-1][: height // 4])
    inside = luma[top or 0 : height - (bottom or 0)]
    left = _border_lines(inside.T[: width // 4])
    return top, bottom, left, _border_lines(inside.T[::-1][: width // 4])


def _border_lines(lines: Pixels) -> int | None:
    """Count the lines from the first one on that have its shade; None if it has several."""
    if not len(lines):
        return 0
    mean, deviation = cv2.meanStdDev(lines[:1])
    if deviation[0, 0] > _SHADE_DEVIATION:
        return None
    apart = np.abs(lines.astype(np.int16) - round(mean[0, 0])).sum(axis=1) > _SHADE_TOLERANCE * lines.shape[1]
    return int(np.argmax(apart)) if apart.any() else 0


@dataclass(frozen=True, slots=True)
class Measures:
    """What is measured of an image while it is prepared; a field named like a column becomes its value.

    To add one, give its column a meaning in ``shardmill.infra.format.contract``, and its value here on all
    three ways.

    Attributes:
        pixel_mean, pixel_std: of each stored channel, before encoding.
        thumbnails: thumbnail of the whole upright image, and one of what is inside its border if it has one:
            uint8 [32, 32] each. A block makes hashes and looks of them.
        quality: brightness, information, sharpness and borders of the picture in the stored image.
    """

    pixel_mean: tuple[float, ...]
    pixel_std: tuple[float, ...]
    thumbnails: tuple[Pixels, ...]
    quality: Quality

    @classmethod
    def of_planes(cls, planes: Planes, shown: Pixels | None, to: Geometry) -> Self:
        """Measure planes, grey or with chroma samples of 2×2 pixels.

        Args:
            planes: of the stored image.
            shown: luma of the whole image, uint8 [H, W]; None: the stored image shows all of it.
            to: has the place of the picture in the stored image.
        """
        halved = halve(planes.y)
        statistics = plane_statistics(planes, halved)
        if shown is None:
            return cls(*statistics, *_of_levels(_levels(planes.y, halved)))
        return cls(*statistics, *_of_luma(shown, planes.y[to.picture]))

    @classmethod
    def of_pixels(cls, pixels: Pixels, shown: Pixels, stored: Pixels) -> Self:
        """Measure pixels, uint8 [h, w, C].

        Args:
            pixels: of the stored image.
            shown: luma of the whole image, uint8 [H, W].
            stored: luma of the picture in the stored image; the same array if that shows all of it.
        """
        return cls(*pixel_statistics(pixels), *_of_luma(shown, stored))

    @classmethod
    def of_samples(cls, pixels: Samples, shown: Pixels, stored: Pixels) -> Self:
        """Measure uint8, uint16 or float32 [h, w, C]; grey takes the place of luma (``in_grey``)."""
        is_bright = kind_of(pixels).is_common
        return cls(*sample_statistics(pixels), *_of_luma(shown, stored, is_bright=is_bright))


def _of_luma(shown: Pixels, stored: Pixels, *, is_bright: bool = True) -> tuple[tuple[Pixels, ...], Quality]:
    thumbnails, quality = _of_levels(_levels(shown), is_bright=is_bright)
    if stored is not shown:
        may_have_bars = _border(stored) != _NO_BORDER
        quality = measure_quality(_levels(stored), is_bright=is_bright, may_have_bars=may_have_bars)
    return thumbnails, quality


def _of_levels(levels: Sequence[Pixels], *, is_bright: bool = True) -> tuple[tuple[Pixels, ...], Quality]:
    """Shrink luma, and what is inside its border if it has one; and measure its quality."""
    border = _border(levels[0])
    inside = _inside(levels[0], border)
    whole = _smallest(levels)
    quality = measure_quality(levels, is_bright=is_bright, may_have_bars=border != _NO_BORDER)
    return (whole,) if inside is None else (whole, thumbnail(inside)), quality
