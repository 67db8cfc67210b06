"""Streams of Arrow, as ``save_to_disk`` of Hugging Face's library writes them, read like Parquet files.

A batch of the stream stands for a row group. The format: https://arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import BinaryIO

import pyarrow as pa

MARK = b"\xff\xff\xff\xff"  # a stream begins with it


class ArrowStream:
    """An open stream, with those members of ``pyarrow.parquet.ParquetFile`` that kind parquet uses.

    Args:
        stream: the open file.

    Attributes:
        schema_arrow: its columns.
        metadata: number of rows of each batch, and their columns.

    Raises:
        pa.ArrowException, OSError: it is damaged, or ends early.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._next = 0  # batch
        self._reader = self._opened()
        self.schema_arrow: pa.Schema = self._reader.schema
        groups = [self._described(batch) for batch in self._reader]
        self._next = len(groups)
        self.metadata = SimpleNamespace(
            num_rows=sum(group.num_rows for group in groups),
            num_row_groups=len(groups),
            row_group=groups.__getitem__,
        )

    def _opened(self) -> pa.RecordBatchStreamReader:
        self._stream.seek(0)
        return pa.ipc.open_stream(self._stream)

    def _described(self, batch: pa.RecordBatch) -> SimpleNamespace:
        paths = [f"{one.name}.bytes" if pa.types.is_struct(one.type) else one.name for one in batch.schema]
        columns = [
            SimpleNamespace(path_in_schema=path, total_uncompressed_size=column.nbytes)
            for path, column in zip(paths, batch.columns, strict=True)
        ]
        return SimpleNamespace(num_rows=batch.num_rows, num_columns=len(columns), column=columns.__getitem__)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        schema = pa.schema([self.schema_arrow.field(name) for name in columns])
        batches = [batch.select(list(columns)) for batch in self._opened()]
        self._next = len(batches)
        return pa.Table.from_batches(batches, schema)

    def iter_batches(
        self,
        columns: Sequence[str],
        row_groups: Sequence[int] | None = None,
        batch_size: int = 0,  # not used: batches keep the sizes that they have in the file
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns of batches, one after the other; ``x.bytes`` is the column x."""
        names = [name.removesuffix(".bytes") for name in columns]
        for group in range(self.metadata.num_row_groups) if row_groups is None else row_groups:
            if group < self._next:
                self._reader, self._next = self._opened(), 0
            while self._next <= group:
                batch = self._reader.read_next_batch()
                self._next += 1
            yield batch.select(names)

    def close(self) -> None:
        """Close nothing: the caller closes the file."""
