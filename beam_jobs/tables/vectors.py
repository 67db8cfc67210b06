"""Vectors of images, whose cosines are the same on every machine.

Each vector is scaled by a power of two and rounded to whole numbers of at most 2**20. Sums of their products
stay below 2**53, so they are exact in whatever order they are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_DIMENSIONS: Final = 4_096

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Vectors:
    """Vectors by the record or the file that they belong to.

    Attributes:
        key: the keys are record ids, or URIs of files relative to the source.
        keys: string [K], unique.
        values: float32 [K, D], finite, none of them zero.
    """

    key: Literal["id", "uri"]
    keys: pa.Array
    values: Float32


def rounded(values: Float32) -> Float32:
    """Return vectors of the same directions, of whole numbers of at most 2**20: float32 [N, D]."""
    largest = np.abs(values).max(axis=1, initial=0)
    _, exponents = np.frexp(largest)
    return np.asarray(np.rint(np.ldexp(values, (20 - exponents)[:, np.newaxis])), np.float32)


def squared_lengths(whole: Float32) -> Float64:
    """Return the exact squared length of each vector of whole numbers: float64 [N]."""
    return dots(whole, whole)


def dots(one: Float32, other: Float32) -> Float64:
    """Return the exact products of pairs of vectors of whole numbers: float64 [N]."""
    return np.asarray(np.einsum("nd,nd->n", one, other, dtype=np.float64))
