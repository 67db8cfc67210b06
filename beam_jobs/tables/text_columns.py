"""Compact columns of text: columns without any text, and columns of few different texts."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

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
