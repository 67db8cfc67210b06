"""Columns of lists: their lengths and values, and lists made of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from shardmill.beam_jobs.tables.long_columns import one_chunk

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def mask_of(values: pa.Array | pa.ChunkedArray) -> Mask:
    """Return a column of truth values as bool [N]; null counts as false."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def is_listed(kind: pa.DataType) -> bool:
    """Tell whether a type is one of Arrow's lists."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def lengths_of(lists: pa.Array | pa.ChunkedArray) -> Int64:
    """Return the length of each list, 0 where it is null: int64 [N]."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def values_of(lists: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of all lists, one after the other."""
    return one_chunk(lists).flatten()


def lists_of(values: pa.Array, lengths: npt.ArrayLike, null: pa.Array | None = None) -> pa.ListArray:
    """Return lists of these lengths.

    Args:
        values: values of all lists, one after the other.
        lengths: integers [N].
        null: bool [N], lists that are null; their lengths are those of the values that they skip.
    """
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])
    mask = null if null is not None and pc.any(null).as_py() else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)


def with_column(table: pa.Table, field: pa.Field, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return a table with a column, in place of that of the same name if there is one."""
    column = column.cast(field.type)
    at = table.schema.get_field_index(field.name)
    return table.append_column(field, column) if at < 0 else table.set_column(at, field, column)
