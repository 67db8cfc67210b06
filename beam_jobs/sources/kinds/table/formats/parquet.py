"""Tables in Parquet."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.beam_jobs.sources.kinds.table.formats.columns import as_text, check_columns, rows_of
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.beam_jobs.tables.utf8 import without_broken_texts
from shardmill.infra.errors import ConfigError

# What reading a damaged file raises; a name of a column that is not UTF-8 is a ValueError.
PARQUET_DAMAGES = (pa.ArrowException, OSError, ValueError)


def read_parquet(table: str, stream: pa.NativeFile, wanted: Mapping[str, str]) -> pa.Table:
    """Read the wanted columns of a Parquet file.

    Args:
        table: name of the table, for errors.
        stream: the open file.
        wanted: column of ROWS_SCHEMA -> column of the file.

    Returns:
        ROWS_SCHEMA without ``table``, and columns of features with the types of the file. A row with a text
        that is not UTF-8 has a fault.

    Raises:
        ConfigError: it is no Parquet file, lacks a wanted column, or a column holds no text.
    """
    try:
        file = pq.ParquetFile(stream)
        check_columns(table, file.schema_arrow.names, wanted)
        found, faults = without_broken_texts(file.read(columns=list(dict.fromkeys(wanted.values()))))
    except PARQUET_DAMAGES as error:
        raise ConfigError(
            f"the table {table} cannot be read as Parquet: {first_line(error)}",
            "write it again, or say what it is with source.table.format",
        ) from error
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        name: found[column] if name.startswith(PREFIX) else as_text(table, column, found[column])
        for name, column in wanted.items()
    }
    return rows_of({**columns, "fault": faults}, found.num_rows)


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or its name if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
