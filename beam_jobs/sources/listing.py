"""What a source lists: one row for every file, in the order of their URIs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.texts import share_empty_texts
from infra.storage import Storage

# A row whose outcome is null goes on to be read; the others are settled by the listing itself.
LISTING_SCHEMA = pa.schema(
    [
        ("uri", pa.string()),  # relative to the source; see infra.names
        ("size_bytes", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("label", pa.string()),
        ("split", pa.string()),  # where the source gives one
        ("group", pa.string()),  # what must stay in one split; null where there is none
        ("outcome", pa.string()),  # filtered | quarantined | null
        ("reason", pa.string()),
        ("message", pa.string()),
    ]
)

DIGEST_ROWS = 65_536
_LISTING_FILE = "listing.arrow"
_GROUP_ROWS = 8192  # as Python values at a time


@dataclass(frozen=True)
class Listing:
    """All files of a source.

    Attributes:
        table: LISTING_SCHEMA, sorted by URI, which is unique.
        warnings: what a person should know about the folder, one sentence each.
    """

    table: pa.Table
    warnings: list[str] = field(default_factory=list)

    def to_read(self) -> pa.Table:
        """The rows that go on to be read, in order."""
        if self.table["outcome"].null_count == self.table.num_rows:
            return self.table  # a filter would copy it
        return self.table.filter(pc.is_null(self.table["outcome"]))

    def digest(self) -> str:
        """SHA-256 over all rows: equal exactly where nothing about any file has changed."""
        return table_digest(self.table)


def write_listing(spool: Storage, table: pa.Table) -> None:
    """Keep a listing (LISTING_SCHEMA) in the spool: memory need not hold it while shards are written."""
    with spool.atomic_writer(_LISTING_FILE) as stream, pa.ipc.new_file(stream, LISTING_SCHEMA) as writer:
        writer.write_table(table)


def read_listing(spool: Storage) -> Listing:
    """The listing that ``write_listing`` kept; on a local disk what is not used of it is not loaded."""
    local = spool.local_path(_LISTING_FILE)
    stream = spool.open_input(_LISTING_FILE) if local is None else pa.memory_map(str(local))
    with stream, pa.ipc.open_file(stream) as reader:
        return Listing(share_empty_texts(reader.read_all()))


def group_by_pattern(table: pa.Table, pattern: str) -> pa.Table:
    """LISTING_SCHEMA with the group of each file: what the first parenthesis matches in its URI.

    A file that the pattern does not match, or matches with nothing in the parenthesis, keeps the group that
    its kind of source gave it.

    Args:
        table: LISTING_SCHEMA.
        pattern: regular expression with a parenthesis.
    """
    search = re.compile(pattern).search
    chunks = []
    for batch in table.select(["uri", "group"]).to_batches(max_chunksize=_GROUP_ROWS):
        found = (search(uri) for uri in batch.column("uri").to_pylist())
        matched = pa.array([match[1] or None if match else None for match in found], pa.string())
        chunks.append(pc.coalesce(matched, batch.column("group")))
    at = table.schema.get_field_index("group")
    return table.set_column(at, table.schema.field(at), pa.chunked_array(chunks, pa.string()))


def table_digest(table: pa.Table) -> str:
    """SHA-256 (hexadecimal) of a table's rows, however the table is cut into chunks."""
    return batches_digest(table.schema, table.combine_chunks().to_batches(max_chunksize=DIGEST_ROWS))


def batches_digest(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> str:
    """SHA-256 (hexadecimal) of rows that come in batches: it depends on where they are cut."""
    digest = hashlib.sha256(str(schema).encode())
    for batch in batches:
        for column in batch.columns:
            digest.update(_column_bytes(column))
    return digest.hexdigest()


def _column_bytes(column: pa.Array) -> bytes:
    # A column that went through IPC once has no stray offsets or bits; the message's own framing is constant.
    return bytes(pa.record_batch([column], names=[""]).serialize())
