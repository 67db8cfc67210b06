"""A counter-based hash: the only source of chance in the order and in augmentation.

``mix64`` is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
generators, OOPSLA 2014). It is written out here because the streams of a library's generators may change
between its releases, and with them the order of every run.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def as_u64(value: int | npt.NDArray[np.integer]) -> U64:
    """``value`` modulo 2**64 as an array of at least one dimension (scalars would warn of wrapping)."""
    if isinstance(value, np.ndarray):
        return np.atleast_1d(value).astype(np.uint64)
    return np.array([value & _MASK], dtype=np.uint64)


def mix64(value: U64) -> U64:
    """A bijection of 64-bit words in which every output bit depends on every input bit."""
    mixed = value + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def key_of(*parts: int | npt.NDArray[np.integer]) -> U64:
    """One 64-bit key from several numbers; arrays broadcast. The order of the parts counts.

    Returns:
        uint64 of the broadcast shape, at least [1].
    """
    key = as_u64(len(parts))
    for part in parts:
        key = mix64(key ^ mix64(as_u64(part)))
    return key


def uniform(keys: U64, stream: int) -> npt.NDArray[np.float64]:
    """One number of [0, 1) for each key; another ``stream`` gives an independent one (53 bits)."""
    bits = mix64(keys ^ mix64(as_u64(stream)))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
