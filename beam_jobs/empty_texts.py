"""Columns of text without any text: they share their memory, which for each would be 4 bytes a row."""

from __future__ import annotations

import pyarrow as pa


def share_empty_texts(table: pa.Table) -> pa.Table:
    """The same table; its columns of text that hold nothing but nulls are one in memory."""
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
