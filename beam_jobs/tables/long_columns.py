"""Columns of more text than Arrow's 32-bit offsets count: 2 GiB, which are 60 million URIs of 36 bytes.

Such a column is in several chunks. Arrow raises an error where they are joined, or where rows are taken of
them. With 64-bit offsets (``large_string`` or ``large_binary``) the column may be in one chunk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

LONGEST = np.iinfo(np.int32).max  # bytes

_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_NARROW = {wide: narrow for narrow, wide in _WIDE.items()}
_ROWS_AT_A_TIME = 1 << 20


def one_chunk(column: pa.Array | pa.ChunkedArray, longest: int = LONGEST) -> pa.Array:
    """Return a column as one array, with 64-bit offsets if it has more than ``longest`` bytes."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)  # joining one chunk would copy it
    if column.type in _WIDE and column.nbytes > longest:
        column = column.cast(_WIDE[column.type])
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def in_one_chunk(table: pa.Table, longest: int = LONGEST) -> pa.Table:
    """Return a table with each column in one chunk; those of more than ``longest`` bytes get another type."""
    columns = [one_chunk(column, longest) for column in table.columns]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def take_rows(table: pa.Table, rows: pa.Array | npt.NDArray[np.int64], longest: int = LONGEST) -> pa.Table:
    """Return some rows of a table, with 32-bit offsets; in several chunks if a column is long.

    Args:
        table: table of any length.
        rows: int64, positions; a null gives nulls.
        longest: bytes above which a column is long.
    """
    rows = pa.array(rows) if isinstance(rows, np.ndarray) else rows
    if not any(_is_long(column, longest) for column in table.columns):
        return table.take(rows)
    wide, schema = in_one_chunk(table, longest), _narrow(table.schema)
    starts = range(0, len(rows), _ROWS_AT_A_TIME)
    parts = [wide.take(rows.slice(start, _ROWS_AT_A_TIME)).cast(schema) for start in starts]
    return pa.concat_tables([schema.empty_table(), *parts])


def with_short_offsets(table: pa.Table) -> pa.Table:
    """Return a table with 32-bit offsets, in several chunks where a column had 64-bit ones."""
    schema = _narrow(table.schema)
    if schema == table.schema:
        return table
    starts = range(0, table.num_rows, _ROWS_AT_A_TIME)
    parts = [table.slice(start, _ROWS_AT_A_TIME).cast(schema) for start in starts]
    return pa.concat_tables([schema.empty_table(), *parts])


def _is_long(column: pa.ChunkedArray, longest: int) -> bool:
    return column.type in _NARROW or (column.type in _WIDE and column.nbytes > longest)


def _narrow(schema: pa.Schema) -> pa.Schema:
    fields = [field.with_type(_NARROW.get(field.type, field.type)) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def sorted_by(table: pa.Table, name: str, longest: int = LONGEST) -> pa.Table:
    """Return the rows of a table in the order of a column."""
    return take_rows(table, pc.sort_indices(table, sort_keys=[(name, "ascending")]), longest)


def places_in(texts: pa.ChunkedArray, known: pa.ChunkedArray, longest: int = LONGEST) -> pa.ChunkedArray:
    """Return the position of each text among the known ones, or null: int32 [texts].

    Args:
        texts: string.
        known: string, without repetitions.
        longest: bytes above which ``known`` gets 64-bit offsets.
    """
    joined = one_chunk(known, longest)
    return pc.index_in(texts.cast(joined.type), joined)
