"""Columns of text: texts that are not UTF-8, columns without any text, and columns of few different texts."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from shardmill.beam_jobs.tables.columns import is_listed, lengths_of

Mask = npt.NDArray[np.bool_]


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


_CODES = (pa.int8(), pa.int16(), pa.int32())


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
