"""Columns of lists and of text, look-up in sorted columns, and columns of more than 2 GiB of text.

Arrow's 32-bit offsets count 2 GiB, which are 60 million URIs of 36 bytes. A longer column is in several
chunks. Arrow raises an error where they are joined, or where rows are taken of them. With 64-bit offsets
(``large_string`` or ``large_binary``) the column may be in one chunk.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from shardmill.beam_jobs.tables.ids import UInt64
from shardmill.infra.errors import DataError

_CODES = (pa.int8(), pa.int16(), pa.int32())


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

    Raises:
        DataError: they hold more values than a column can.
    """
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])
    if offsets[-1] > LONGEST:
        raise DataError(
            f"a column of lists would hold {offsets[-1]:,} values, such as numbers of polygons, and at most "
            f"{LONGEST:,} are possible",
            "divide the source into several data sets, or leave out classes (source.columns.drop_labels)",
        )
    mask = null if null is not None and pc.any(null).as_py() else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)


def with_column(table: pa.Table, field: pa.Field, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return a table with a column, in place of that of the same name if there is one."""
    column = column.cast(field.type)
    at = table.schema.get_field_index(field.name)
    return table.append_column(field, column) if at < 0 else table.set_column(at, field, column)


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


def without_broken_texts(table: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return a table with null in place of texts that are not UTF-8, and what is wrong with each row.

    The second is string [rows], null for a row without such texts. Arrow reads Parquet without looking at its
    texts, and fails where they are used.
    """
    faults = pa.nulls(table.num_rows, pa.string())
    for at, field in enumerate(table.schema):
        column = table.column(at)
        # Chunk by chunk: joined, the texts of a long column could be too many for Arrow.
        bad = [_rows_with_broken_texts(chunk) for chunk in column.chunks]
        is_bad = np.concatenate([np.zeros(0, np.bool_), *bad])
        if is_bad.any():
            faults = pc.if_else(pa.array(is_bad), f"its {field.name} is not UTF-8", faults)
            chunks = [
                chunk.take(pa.array(np.arange(len(chunk)), mask=mask))
                for chunk, mask in zip(column.chunks, bad, strict=True)
            ]
            table = table.set_column(at, field, pa.chunked_array(chunks, field.type))
    return table, faults


def not_utf8(values: pa.Array) -> Mask:
    """Return which bytes are not UTF-8: bool [N]."""
    is_large = types.is_large_string(values.type) or types.is_large_binary(values.type)
    binary = values.cast(pa.large_binary() if is_large else pa.binary())
    bad = np.zeros(len(values), np.bool_)
    try:
        binary.cast(pa.large_string() if is_large else pa.string())
    except pa.ArrowInvalid:
        for at, value in enumerate(binary.to_pylist()):
            try:
                (value or b"").decode("utf-8")
            except UnicodeDecodeError:
                bad[at] = True
    return bad


def _rows_with_broken_texts(values: pa.Array) -> Mask:
    """Return which rows of a column of texts, or of lists of texts, are broken: bool [rows]."""
    found = np.zeros(len(values), np.bool_)
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    rows = np.arange(len(values))
    if is_listed(values.type):
        rows, values = np.repeat(rows, lengths_of(values)), values.flatten()
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
    if types.is_string(values.type) or types.is_large_string(values.type):
        found[rows[not_utf8(values)]] = True
    return found


def share_empty_texts(table: pa.Table) -> pa.Table:
    """Let all text columns of a table that hold only nulls share their memory.

    Each would take 4 bytes a row.
    """
    names = [
        field.name
        for field in table.schema
        if field.type == pa.string() and table[field.name].null_count == table.num_rows
    ]
    if len(names) < 2:
        return table
    none = pa.chunked_array([pa.nulls(table.num_rows, pa.string())])
    columns = {field.name: none if field.name in names else table[field.name] for field in table.schema}
    return pa.table(columns, schema=table.schema)


def code_texts(table: pa.Table, names: Collection[str]) -> pa.Table:
    """Dictionary-code some text columns of a table, with the shortest codes that suffice."""
    for at, field in enumerate(table.schema):
        if field.name in names and field.type == pa.string():
            table = table.set_column(at, field.name, _coded(table[field.name]))
    return table


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    coded = column.dictionary_encode().combine_chunks()
    codes = next(kind for kind in _CODES if len(coded.dictionary) <= 1 << (kind.bit_width - 1))
    return pa.DictionaryArray.from_arrays(coded.indices.cast(codes), coded.dictionary)
