"""Look-up of record ids in a sorted column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.tables.ids import UInt64


def find_ids(ids: UInt64, wanted: UInt64) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Find ids in a sorted column.

    Args:
        ids: uint64 [N], rising.
        wanted: uint64 [M].

    Returns:
        The position of each wanted id in ``ids`` (int64 [M], arbitrary where it is not there), and whether it
        is there (bool [M]).
    """
    if not len(ids):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return at, ids[at] == wanted
