"""Compute the perceptual hash: 64 bits that survive scaling, another compression and slight retouching.

This is the DCT hash of Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions" (2010),
section 3.2.1, as in the pHash library. Luma is averaged to 32×32 and goes through a two-dimensional cosine
transform. Each coefficient with frequencies 1 to 8 both ways gives a bit: whether it is above their median.

The table of the transform is rounded to integers, so a hash is the same on every machine, in whatever order
the sums are added. The thumbnails of a block are transformed together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.codecs.measures.moments import halve
from shardmill.infra.codecs.resize import resize

THUMBNAIL_SIDE = 32

_FREQUENCIES = np.arange(1, 9)
_TABLE_UNIT = 1 << 10
# Halving is cheap, averaging by other ratios is not. So luma is halved down to this side (pixels) first.
_HALVED_TO = 128
# Grey levels, of the transform with orthonormal rows. If half of the coefficients are below this, rounding to
# grey levels decides the bits. Such a blank picture has no hash, so it does not resemble other blank ones.
_LEAST_MEDIAN = 0.5


def _table() -> npt.NDArray[np.float64]:
    """Return the one-dimensional transform times ``_TABLE_UNIT``, float64 [8, 32]."""
    places = (2 * np.arange(THUMBNAIL_SIDE) + 1) * np.pi / (2 * THUMBNAIL_SIDE)
    rows = np.sqrt(2 / THUMBNAIL_SIDE) * np.cos(_FREQUENCIES[:, np.newaxis] * places)
    return np.asarray(np.rint(rows * _TABLE_UNIT))


_TABLE = _table()


def thumbnail(luma: Pixels, halved: Pixels | None = None) -> Pixels:
    """Shrink luma to the thumbnail that is hashed.

    Args:
        luma: uint8 [H, W], upright.
        halved: ``halve(luma)`` if the caller has it.

    Returns:
        uint8 [32, 32].
    """
    for _ in range(halvings(*luma.shape)):
        luma, halved = halve(luma) if halved is None else halved, None
    return resize(luma, (THUMBNAIL_SIDE, THUMBNAIL_SIDE))


def halvings(height: int, width: int) -> int:
    """Return how often luma of this size (pixels) is halved before it is averaged to the thumbnail."""
    count = 0
    while min(height, width) >= _HALVED_TO:
        height, width, count = height // 2, width // 2, count + 1
    return count


def perceptual_hashes(thumbnails: npt.NDArray[np.uint8]) -> list[int | None]:
    """Return the hash of each thumbnail, None for blank ones.

    Args:
        thumbnails: uint8 [N, 32, 32].
    """
    if not len(thumbnails):
        return []
    values = thumbnails.astype(np.float64)
    # No matrix product: numpy and OpenCV would call OpenBLAS, whose threads stay awake for a while after each
    # call and take a tenth of the processor's time. Sums stay below 2**53, so they are exact.
    along_rows = np.einsum("nyx,ux->nyu", values, _TABLE)
    coefficients = np.einsum("nyu,vy->nvu", along_rows, _TABLE).reshape(-1, len(_FREQUENCIES) ** 2)
    bits = coefficients > np.median(coefficients, axis=1, keepdims=True)
    hashes = np.packbits(bits, axis=1).view(">u8")[:, 0].tolist()
    blank = np.median(np.abs(coefficients), axis=1) < _LEAST_MEDIAN * _TABLE_UNIT**2
    return [None if empty else value for value, empty in zip(hashes, blank.tolist(), strict=True)]
