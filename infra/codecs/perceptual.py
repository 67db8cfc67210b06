"""The perceptual hash: 64 bits that stay when a picture is scaled, compressed anew or slightly retouched.

The DCT hash of Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions" (2010), section
3.2.1, as the pHash library has it: luma averaged to 32×32, its two-dimensional cosine transform, of that the
coefficients with frequencies 1 to 8 both ways, and of each one bit: whether it lies above their median.

The transform's table is rounded to integers, so a hash is exact: the same on every machine, in whatever order
the sums are made. The thumbnails of a block are transformed together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from infra.codecs.formats import Pixels
from infra.codecs.moments import halve
from infra.codecs.resize import resize

THUMBNAIL_SIDE = 32
HASH_BITS = 64

_FREQUENCIES = np.arange(1, 9)
_TABLE_UNIT = 1 << 10
# Halving is cheap, averaging by other ratios is not: so much is left for the latter.
_HALVED_TO = 128
# Grey levels (of the transform with orthonormal rows). Where half of the coefficients are below it, rounding
# to whole grey levels decides the bits: a blank picture looks like no other, not like all other blank ones.
_LEAST_MEDIAN = 0.5


def _table() -> npt.NDArray[np.float64]:
    """[8, 32]: one-dimensional transform, times ``_TABLE_UNIT``."""
    places = (2 * np.arange(THUMBNAIL_SIDE) + 1) * np.pi / (2 * THUMBNAIL_SIDE)
    rows = np.sqrt(2 / THUMBNAIL_SIDE) * np.cos(_FREQUENCIES[:, np.newaxis] * places)
    return np.asarray(np.rint(rows * _TABLE_UNIT))


_TABLE = _table()


def thumbnail(luma: Pixels, halved: Pixels | None = None) -> Pixels:
    """What the hash is taken from: uint8 [32, 32] of the upright luma.

    Args:
        luma: uint8 [H, W].
        halved: ``halve(luma)``, where it is there already.
    """
    for _ in range(halvings(*luma.shape)):
        luma, halved = halve(luma) if halved is None else halved, None
    return resize(luma, (THUMBNAIL_SIDE, THUMBNAIL_SIDE))


def halvings(height: int, width: int) -> int:
    """How often luma of this size (pixels) is halved before it is averaged to the thumbnail."""
    count = 0
    while min(height, width) >= _HALVED_TO:
        height, width, count = height // 2, width // 2, count + 1
    return count


def perceptual_hashes(thumbnails: npt.NDArray[np.uint8]) -> list[int | None]:
    """The hash of each thumbnail, None for blank ones.

    Args:
        thumbnails: uint8 [N, 32, 32].
    """
    if not len(thumbnails):
        return []
    values = thumbnails.astype(np.float64)
    # Not a product of matrices: numpy and OpenCV give it to OpenBLAS, whose own threads then stay awake for a
    # while after each call, a tenth of the processor's time in all. Sums stay below 2**53, so they are exact.
    along_rows = np.einsum("nyx,ux->nyu", values, _TABLE)
    coefficients = np.einsum("nyu,vy->nvu", along_rows, _TABLE).reshape(-1, HASH_BITS)
    bits = coefficients > np.median(coefficients, axis=1, keepdims=True)
    hashes = np.packbits(bits, axis=1).view(">u8")[:, 0].tolist()
    blank = np.median(np.abs(coefficients), axis=1) < _LEAST_MEDIAN * _TABLE_UNIT**2
    return [None if empty else value for value, empty in zip(hashes, blank.tolist(), strict=True)]
