"""Texts in files of others that are not UTF-8, though their columns say so."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from beam_jobs.tables.lists import is_listed, lengths_of, one_chunk

Mask = npt.NDArray[np.bool_]


def without_broken_texts(table: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return a table with null in place of texts that are not UTF-8, and what is wrong with each row.

    The second is string [rows], null for a row without such texts. Arrow reads Parquet without looking at its
    texts, and fails where they are used.
    """
    faults = np.full(table.num_rows, None, object)
    for at, field in enumerate(table.schema):
        bad = _rows_with_broken_texts(table.column(at))
        if bad is None:
            continue
        faults[bad] = f"its {field.name} is not UTF-8"
        rows = pa.array(np.arange(table.num_rows), mask=bad)
        table = table.set_column(at, field, table.column(at).take(rows))
    return table, pa.array(faults, pa.string())


def not_utf8(values: pa.Array) -> Mask:
    """Return which bytes are not UTF-8: bool [N]."""
    bad = np.zeros(len(values), np.bool_)
    try:
        values.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        for at, value in enumerate(values.cast(pa.binary()).to_pylist()):
            try:
                (value or b"").decode("utf-8")
            except UnicodeDecodeError:
                bad[at] = True
    return bad


def _rows_with_broken_texts(column: pa.ChunkedArray) -> Mask | None:
    """Return which rows of a column of texts, or of lists of texts, are broken: bool [rows]; None if none."""
    values = one_chunk(column)
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    rows = np.arange(len(values))
    if is_listed(values.type):
        rows, values = np.repeat(rows, lengths_of(values)), values.flatten()
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
    if not (types.is_string(values.type) or types.is_large_string(values.type)):
        return None
    bad = not_utf8(values)
    if not bad.any():
        return None
    found = np.zeros(len(column), np.bool_)
    found[rows[bad]] = True
    return found
