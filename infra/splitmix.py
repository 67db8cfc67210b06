"""SplitMix64: 64-bit numbers that look random, and are the same everywhere.

The finaliser of Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014. It is
written out here because the streams of a library's generators may change between its releases, and with them
every plan of a dataset and the order of every run.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def splitmix64(values: U64, out: U64 | None = None) -> U64:
    """A bijection of 64-bit numbers in which every output bit depends on every input bit.

    Args:
        values: uint64 [N] (a scalar would warn of wrapping).
        out: uint64 [N], where the result goes, which may be ``values``; default: an array of its own.

    Returns:
        uint64 [N].
    """
    mixed: U64 = np.add(values, _GOLDEN, out=out)
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed
