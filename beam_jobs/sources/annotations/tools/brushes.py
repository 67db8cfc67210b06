"""Masks as run lengths of bits, as brushes of Label Studio: ``rle_encode`` of https://github.com/thi-ng/umbrella.

The first 32 bits are the number of values, 5 the size of a value (less one), and four times 4 the sizes of
the counts (less one). Then a bit says whether a value is repeated, and two which size its count (less one)
has; one value follows, or as many as are counted. Values are bytes: red, green, blue, alpha of each pixel.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.sources.annotations.shapes import MOST_MASK_PIXELS

_CHANNELS, _ALPHA = 4, 3


def mask_of_brush(values: object, height: int, width: int) -> npt.NDArray[np.bool_] | None:
    """Return the pixels that a brush has painted: bool [H, W]; None if the values are none of a brush.

    Args:
        values: the bytes, a list of whole numbers.
        height: of the annotated image (pixels).
        width: of the annotated image (pixels).
    """
    count = height * width * _CHANNELS
    if not isinstance(values, list) or height < 1 or width < 1 or count > MOST_MASK_PIXELS * _CHANNELS:
        return None
    if not all(isinstance(value, int) and 0 <= value < 256 for value in values):
        return None
    bits = _Bits(np.unpackbits(np.array(values, np.uint8)))
    try:
        if bits.number(32) != count:
            return None
        size = bits.number(5) + 1
        sizes = [bits.number(4) + 1 for _ in range(4)]
        found, at = np.zeros(count, np.uint8), 0
        while at < count:
            is_repeated = bits.number(1)
            length = bits.number(sizes[bits.number(2)]) + 1
            if at + length > count:
                return None
            found[at : at + length] = bits.number(size) if is_repeated else bits.numbers(length, size)
            at += length
    except (IndexError, ValueError, OverflowError):
        return None
    painted: npt.NDArray[np.bool_] = found.reshape(height, width, _CHANNELS)[:, :, _ALPHA] > 0
    return painted


class _Bits:
    """Reads numbers from bits, the highest first.

    Raises:
        IndexError: there are no more.
    """

    def __init__(self, bits: npt.NDArray[np.uint8]) -> None:
        self._bits = bits
        self._at = 0

    def number(self, size: int) -> int:
        return int(self.numbers(1, size)[0])

    def numbers(self, count: int, size: int) -> npt.NDArray[np.int64]:
        end = self._at + count * size
        if end > len(self._bits):
            raise IndexError("no more bits")
        weights = 1 << np.arange(size, dtype=np.int64)[::-1]
        found: npt.NDArray[np.int64] = self._bits[self._at : end].reshape(count, size) @ weights
        self._at = end
        return found
