"""Rows of a matrix as lists of Arrow, and back."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NUMBERS: Final = pa.list_(pa.float32())


def numbers_of(column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """Return lists of equal length as the rows of a matrix: float32 [n, k]."""
    lists = column.combine_chunks()
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values.reshape(len(lists), -1 if len(lists) else 0), np.float32)


def lists_of(values: npt.NDArray[Any]) -> pa.ListArray:
    """Return the rows of a matrix as lists: float [n, k]."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(offsets, values.astype(np.float32).ravel())
