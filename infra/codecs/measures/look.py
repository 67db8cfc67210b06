"""Compute the look of an image: its coarse structure, from which copies are recognised.

A look holds the lowest 14×14 coefficients of the two-dimensional cosine transform of a thumbnail (luma,
32×32). From them one gets the coefficients of a mirrored or turned image by signs and transposition, and
nearly those of a cut image by a linear map. So one look serves to find all of these copies
(``shardmill.beam_jobs.plan.similarity``).

A coefficient c (grey levels, of the transform with orthonormal rows) is stored as the nearest integer to
±4·√|c|, from -127 to 127, in a byte. The mean is stored as 0: how bright an image is does not matter.
Thumbnails and the table of the transform are integers, and a square root is exact to the last bit, so a look
is the same on every machine.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.codecs.measures.perceptual import THUMBNAIL_SIDE

LOOK_SIDE, ROOT_UNIT = 14, 4  # the same as in shardmill.infra.format.look

_TABLE_UNIT = 1 << 10
_LARGEST = 127
# An image needs so many coefficients of its own. A blank one, or a smooth run of shades, has fewer, and would
# resemble every other one of its kind.
_LEAST_SPREAD = 12
# Grey levels: deviation of the outermost line of a border, and mean distance of the others from that shade.
_SHADE_DEVIATION = 4
_SHADE_TOLERANCE = 6

Float64 = npt.NDArray[np.float64]


def _table() -> Float64:
    """Return the one-dimensional transform times ``_TABLE_UNIT``: float64 [14, 32]."""
    places = (2 * np.arange(THUMBNAIL_SIDE) + 1) * np.pi / (2 * THUMBNAIL_SIDE)
    rows = np.sqrt(2 / THUMBNAIL_SIDE) * np.cos(np.arange(LOOK_SIDE)[:, np.newaxis] * places)
    rows[0] /= np.sqrt(2)
    return np.asarray(np.rint(rows * _TABLE_UNIT))


_TABLE = _table()


def looks(thumbnails: npt.NDArray[np.uint8]) -> list[bytes | None]:
    """Return the look of each thumbnail; None for images without enough structure to tell them apart.

    Args:
        thumbnails: uint8 [N, 32, 32].

    Returns:
        N times 196 bytes: int8 [14 rows of vertical frequencies, 14 horizontal frequencies].
    """
    if not len(thumbnails):
        return []
    values = thumbnails.astype(np.float64)
    # See perceptual_hashes for why this is no matrix product.
    along_rows = np.einsum("nyx,ux->nyu", values, _TABLE)
    coefficients = np.einsum("nyu,vy->nvu", along_rows, _TABLE) / _TABLE_UNIT**2
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
    height, width = luma.shape
    top = _border_lines(luma[: height // 4])
    bottom = _border_lines(luma[::-1][: height // 4])
    inside = luma[top : height - bottom]
    left = _border_lines(inside.T[: width // 4])
    right = _border_lines(inside.T[::-1][: width // 4])
    if not (top or bottom or left or right):
        return None
    return inside[:, left : width - right]


def _border_lines(lines: Pixels) -> int:
    """Count the lines from the first one on that have its shade."""
    if not len(lines):
        return 0
    mean, deviation = cv2.meanStdDev(lines[:1])
    if deviation[0, 0] > _SHADE_DEVIATION:
        return 0
    apart = np.abs(lines.astype(np.int16) - round(mean[0, 0])).sum(axis=1) > _SHADE_TOLERANCE * lines.shape[1]
    return int(np.argmax(apart)) if apart.any() else 0
