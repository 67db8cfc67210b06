"""Digests of the rows of Arrow tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pyarrow as pa

from shardmill.beam_jobs.tables.features import PREFIX, canonical_bytes

DIGEST_ROWS = 65_536  # rows hashed together


def table_digest(table: pa.Table) -> str:
    """Return the SHA-256 (hexadecimal) of a table's rows, however the table is cut into chunks."""
    table = table.combine_chunks()  # a column of more than 2 GiB stays in several
    starts = range(0, table.num_rows, DIGEST_ROWS)
    parts = (table.slice(start, DIGEST_ROWS).combine_chunks() for start in starts)
    return batches_digest(table.schema, (batch for part in parts for batch in part.to_batches()))


def batches_digest(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> str:
    """Return the SHA-256 (hexadecimal) of rows in batches. It depends on where the batches are cut."""
    digest = hashlib.sha256(str(schema).encode())
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            digest.update(canonical_bytes(column) if name.startswith(PREFIX) else _column_bytes(column))
    return digest.hexdigest()


def _column_bytes(column: pa.Array) -> bytes:
    # A column that went through IPC once has no stray offsets or bits; the message's own framing is constant.
    return bytes(pa.record_batch([column], names=[""]).serialize())
