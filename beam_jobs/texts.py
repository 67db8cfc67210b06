"""Columns of text that take little memory: those without any text, and those of few different texts."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

_CODES = (pa.int8(), pa.int16(), pa.int32())


def share_empty_texts(table: pa.Table) -> pa.Table:
    """The same table; its columns of text that hold nothing but nulls are one in memory.

    By themselves they would take 4 bytes a row each.
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
    """The same table; the named columns of text are dictionary-coded, with the shortest codes that do."""
    for at, field in enumerate(table.schema):
        if field.name in names and field.type == pa.string():
            table = table.set_column(at, field.name, _coded(table[field.name]))
    return table


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    coded = column.dictionary_encode().combine_chunks()
    codes = next(kind for kind in _CODES if len(coded.dictionary) <= 1 << (kind.bit_width - 1))
    return pa.DictionaryArray.from_arrays(coded.indices.cast(codes), coded.dictionary)
