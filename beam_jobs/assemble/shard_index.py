"""The index of a shard: one row per record, with its place in the shard and the facts of its image.

The index is written and hashed while it is made, so that a worker never holds a whole one.
"""

from __future__ import annotations

import hashlib
import io
from array import array
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.beam_jobs.tables.ids import digest_bytes, hex_text
from shardmill.infra.format.contract import INDEX_SCHEMA, class_counts_of
from shardmill.infra.format.features import Feature


class HashedWriter:
    """A stream that counts and hashes the bytes that Arrow writes to it, and passes them on."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.num_bytes = 0

    def write(self, data: bytes) -> None:
        """Write data."""
        self._stream.write(data)
        self._digest.update(data)
        self.num_bytes += len(data)

    def go_nowhere(self) -> None:
        """Discard everything from here on."""
        self._stream = io.BytesIO()

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.num_bytes

    def flush(self) -> None:
        """Flush the underlying stream."""
        self._stream.flush()

    def hexdigest(self) -> str:
        """Return the SHA-256 of the written bytes."""
        return self._digest.hexdigest()


def index_schema(features: Sequence[Feature]) -> pa.Schema:
    """Return the columns of an index: INDEX_SCHEMA, and a column for each further feature."""
    if not features:
        return INDEX_SCHEMA
    return pa.schema([*INDEX_SCHEMA, *(pa.field(feature.name, feature.arrow_type) for feature in features)])


class ShardIndex:
    """Writes a shard's index as a Parquet file, a row group for each batch of records.

    Used as a context: if it is left with an exception, the file stays without its end.

    Attributes:
        class_counts: class -> number of records that have it.
        payload_bytes: length of all encoded images together.
    """

    def __init__(
        self,
        out: HashedWriter,
        offsets: array[int],
        lengths: array[int],
        classes: Sequence[str],
        features: Sequence[Feature] = (),
    ) -> None:
        self.class_counts: Counter[str] = Counter()
        self.payload_bytes = 0
        self._offsets = np.frombuffer(offsets, np.int64)
        self._lengths = np.frombuffer(lengths, np.int64)
        self._num_rows = 0
        self._out = out
        self._sink = pa.PythonFile(out, mode="w")
        self._classes = classes
        self._features = [feature.name for feature in features]
        self._schema = index_schema(features)
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._out.go_nowhere()  # Arrow's writer writes an end even when it is thrown away
        self._writer.close()

    def add(self, records: pa.RecordBatch) -> None:
        """Add the rows of the next records (SPOOLED_PLAN_SCHEMA and columns of features)."""
        rows = slice(self._num_rows, self._num_rows + records.num_rows)
        columns = {name: records[name] for name in INDEX_SCHEMA.names if name in records.schema.names}
        columns |= {
            "offset_bytes": pa.array(self._offsets[rows]),
            "length_bytes": pa.array(self._lengths[rows]),
            "sha256": hex_text(digest_bytes(records["sha256"])),
        }
        columns |= {name: records[PREFIX + name] for name in self._features}
        names = self._schema.names
        rows_of_index = pa.record_batch([columns[name] for name in names], schema=self._schema)
        self._writer.write_batch(rows_of_index)
        self.class_counts.update(class_counts_of(rows_of_index, self._classes))
        self._num_rows = rows.stop
        self.payload_bytes += pc.sum(records["stored_bytes"]).as_py()
