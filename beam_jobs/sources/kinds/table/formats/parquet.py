"""Tables in Parquet."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.sources.kinds.table.formats.columns import as_text, check_columns, rows_of
from beam_jobs.tables.features import PREFIX
from infra.errors import ConfigError


def read_parquet(table: str, stream: pa.NativeFile, wanted: Mapping[str, str]) -> pa.Table:
    """Read the wanted columns of a Parquet file.

    Args:
        table: name of the table, for errors.
        stream: the open file.
        wanted: column of ROWS_SCHEMA -> column of the file.

    Returns:
        ROWS_SCHEMA without ``table``, and columns of features with the types of the file.

    Raises:
        ConfigError: it is no Parquet file, lacks a wanted column, or a column holds no text.
    """
    try:
        file = pq.ParquetFile(stream)
        check_columns(table, file.schema_arrow.names, wanted)
        found = file.read(columns=list(dict.fromkeys(wanted.values())))
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(
            f"the table {table} cannot be read as Parquet: {str(error).splitlines()[0]}",
            "write it again, or say what it is with source.table.format",
        ) from error
    columns = {
        name: found[column] if name.startswith(PREFIX) else as_text(table, column, found[column])
        for name, column in wanted.items()
    }
    return rows_of(columns, found.num_rows)
