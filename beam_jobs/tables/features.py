"""Columns of further features in the tables between the stages.

Such a column is named ``feature:NAME``, so that it clashes with no other, and its field carries the
description of the feature (``shardmill.infra.format.features``). These columns stand behind those of a
schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.format.features import Feature, features_in

PREFIX = "feature:"

Mask = npt.NDArray[np.bool_]


def with_features(schema: pa.Schema, features: Iterable[Feature]) -> pa.Schema:
    """Return a schema with the columns of features behind its own."""
    return pa.schema([*schema, *(feature.arrow_field(PREFIX) for feature in features)])


def features_of(table: pa.Table | pa.RecordBatch) -> list[Feature]:
    """Return the features that a table has columns of, in order."""
    return features_in(table.schema)


def feature_columns(features: Iterable[Feature]) -> list[str]:
    """Return the names of the columns of features."""
    return [PREFIX + feature.name for feature in features]


def same_columns(one: Sequence[Feature], other: Sequence[Feature]) -> bool:
    """Tell whether records of one list of features are stored as those of another."""
    stored = [
        [
            (feature.name, feature.dtype, feature.shape, feature.length, feature.is_text)
            for feature in features
        ]
        for features in (one, other)
    ]
    return stored[0] == stored[1]


def equal_rows(one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> Mask:
    """Compare two columns of one type row by row: bool [N]. Null equals null, and NaN equals NaN."""
    one, other = _joined(one), _joined(other)
    both = _mask(pc.equal(pc.is_valid(one), pc.is_valid(other)))
    if not pa.types.is_list(one.type):
        return both & _equal_values(one, other)
    lengths = [pc.fill_null(pc.list_value_length(column), 0).to_numpy() for column in (one, other)]
    same = both & (lengths[0] == lengths[1])
    chosen = pa.array(same)
    values = [column.filter(chosen).flatten() for column in (one, other)]
    rows = np.repeat(np.flatnonzero(same), lengths[0][same])
    same[rows[~_equal_values(*values)]] = False
    return np.asarray(same, np.bool_)


def canonical_bytes(column: pa.Array) -> bytes:
    """Return bytes that are equal exactly for columns of equal rows.

    Arrow leaves arbitrary bytes where a value is null, and the bytes of a slice depend on where it begins.
    """
    valid = np.packbits(_mask(pc.is_valid(column))).tobytes()
    if pa.types.is_list(column.type):
        return valid + _counts(pc.list_value_length(column)) + canonical_bytes(column.flatten())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        texts = b"".join(column.cast(pa.binary()).drop_null().to_pylist())
        return valid + _counts(pc.binary_length(column)) + texts
    filled = pc.fill_null(column, pa.scalar(0, column.type))
    values: npt.NDArray[np.generic] = filled.to_numpy(zero_copy_only=False)
    return valid + values.tobytes()


def _counts(lengths: pa.Array) -> bytes:
    counts: npt.NDArray[np.int32] = pc.fill_null(lengths, 0).cast(pa.int32()).to_numpy()
    return counts.tobytes()


def _equal_values(one: pa.Array, other: pa.Array) -> Mask:
    equal = _mask(pc.equal(one, other)) | (_mask(pc.is_null(one)) & _mask(pc.is_null(other)))
    if pa.types.is_floating(one.type):
        equal |= _mask(pc.is_nan(one)) & _mask(pc.is_nan(other))
    return equal


def _joined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _mask(values: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)
