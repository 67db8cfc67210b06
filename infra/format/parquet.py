"""Read Parquet files so that the process can end at any moment afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(source: bytes | pa.NativeFile, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some of its columns.

    Bytes and Python files are read on the calling thread only. Otherwise a thread of Arrow may hold the last
    reference to the Python object, and the process aborts if the interpreter ends at that moment
    (apache/arrow#34314). Arrow's own files hold no Python object, so several threads read them.

    Args:
        source: the content of the file, or an open file.
        columns: the columns to read; None: all.

    Raises:
        pyarrow.ArrowException: it is not a readable Parquet file.
    """
    if isinstance(source, bytes):
        source = pa.BufferReader(source)
        threads = False
    else:
        threads = not isinstance(source, pa.PythonFile)
    with pq.ParquetFile(source, pre_buffer=threads) as file:
        return file.read(columns=None if columns is None else list(columns), use_threads=threads)
