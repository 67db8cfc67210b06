"""A counter-based hash (SplitMix64), the only source of random numbers in the order and in augmentation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardmill.infra.splitmix import U64, splitmix64

_MASK = (1 << 64) - 1


def as_u64(value: int | npt.NDArray[np.integer]) -> U64:
    """Return ``value`` modulo 2**64 as an array of at least one dimension (scalars warn on overflow)."""
    if isinstance(value, np.ndarray):
        return np.atleast_1d(value).astype(np.uint64)
    return np.array([value & _MASK], dtype=np.uint64)


def key_of(*parts: int | npt.NDArray[np.integer]) -> U64:
    """Make one 64-bit key from several numbers; arrays broadcast. The order of the parts matters.

    Returns:
        uint64 of the broadcast shape, at least [1].
    """
    key = as_u64(len(parts))
    for part in parts:
        key = splitmix64(key ^ splitmix64(as_u64(part)))
    return key


def uniform(keys: U64, stream: int) -> npt.NDArray[np.float64]:
    """Return a number of [0, 1) with 53 bits for each key. Another ``stream`` gives an independent number."""
    bits = splitmix64(keys ^ splitmix64(as_u64(stream)))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
