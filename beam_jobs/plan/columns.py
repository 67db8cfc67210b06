"""Columns as arrays of split codes and row numbers, and hash ranks.

Hash ranks are pseudo-random numbers, the same on every machine, that order the records for each purpose.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.tables.ids import UInt64
from shardmill.infra.format.contract import SPLITS
from shardmill.infra.splitmix import splitmix64

# Purposes of hash ranks: each has an order of its own.
SPLIT, SHARD, PLACE, SAMPLE = range(4)

_MASK = (1 << 64) - 1


def hash_ranks(ids: UInt64, seed: int, purpose: int) -> UInt64:
    """Return a number for each record that decides its place for one purpose: uint64 [N].

    Different ids never share a number. Another seed or purpose gives an unrelated order.
    """
    key = splitmix64(np.array([(seed * 8 + purpose) & _MASK], np.uint64))[0]
    ranks = ids ^ key
    return splitmix64(ranks, out=ranks)  # in place, since columns of a plan are long


# Rows that are made, hashed and written at a time. Plan digests depend on this number.
PLAN_ROWS = 4_096

# Row numbers. Four bytes each, since a plan has many such columns: two billion rows at most.
Rows = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

Codes = npt.NDArray[np.int8]  # index into SPLITS; -1 if there is none


def rows_where(mask: npt.NDArray[np.bool_]) -> Rows:
    """Return the positions at which a mask is true, rising."""
    return np.flatnonzero(mask).astype(np.int32)


def insertion_points(rows: Rows | Int64, values: npt.ArrayLike) -> Int64:
    """Return where values belong in rising row numbers, before equal ones: int64, one for each value.

    The values take the type of the rows. Otherwise ``np.searchsorted`` would copy all rows, and a plan that
    searches for every few thousand of its rows would take quadratic time.
    """
    return np.searchsorted(rows, np.asarray(values, rows.dtype))


def is_null(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which rows of a column are null: bool [N]."""
    return np.asarray(pc.is_null(column).to_numpy(), np.bool_)


def split_codes(splits: pa.ChunkedArray) -> Codes:
    """Return the index into SPLITS of each name: int8 [N], -1 if it is null."""
    codes = pc.index_in(splits, pa.array(SPLITS, pa.string()))
    return np.asarray(pc.fill_null(codes, -1).to_numpy(), np.int8)


def places_of(rows: Rows | Int64, total: int) -> pa.Array:
    """Return the position in ``rows`` of each of ``total`` rows, or null: int64 [total], for ``take``."""
    places = np.full(total, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return pa.array(places, mask=places < 0)
