"""The only source of random numbers of the order and of augmentation: a counter-based hash (SplitMix64).

A random number is ``uniform(key, stream)``, and its key is ``key_of(purpose, seed, epoch, ...)``. Two numbers
are independent if their purposes differ, or if their streams differ under the same key. An augmentation says
in its own file which streams it takes (``shardmill.training.augment.kinds``).

All values are part of the order and of exact resume: they never change between versions.
"""

from __future__ import annotations

from enum import IntEnum, unique

import numpy as np
import numpy.typing as npt

from shardmill.infra.splitmix import U64, splitmix64

_MASK = (1 << 64) - 1


@unique
class Purpose(IntEnum):
    """The purpose of a key, which is its first part."""

    EPOCH = 1  # the permutation of all records of an epoch
    SEGMENT = 2  # the permutation of the draws of a segment
    PASS = 3  # the permutation of one pass over a class
    CIRCLE = 4  # the circle in which the records of a class stand
    IMAGE = 5  # augmentation of one image
    ERASING_BOX = 6  # derived from the key of an image
    ERASING_NOISE = 7  # derived from the key of an image
    BATCH = 8  # augmentation of a whole batch: RandAugment, MixUp, CutMix
    TRANSFORM = 9  # the user's own function of an example (PyTorch)
    PLUGIN = 10  # derived from the key of an image or a batch: augmentation by a plugin
    BLOCK_SEQUENCE = 16  # the sequence of the blocks of an epoch
    BLOCK_WINDOW = 17  # the permutation of the records of a window
    FOLD = 24  # the division of a split into folds
    MIXTURE = 32  # the seed of each data set of a mixture
    STREAMED_SHARDS = 61  # the seed with which a stream shuffles its shards
    STREAMED_RECORDS = 62  # the seed of a stream's shuffle buffer


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
