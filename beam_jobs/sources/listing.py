"""The listing of a source: one row per file (LISTING_SCHEMA), in the order of URIs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.schemas import FILTER_REASONS, IGNORED, LISTING_SCHEMA, Status, outcomes_of
from shardmill.beam_jobs.sources.files.walking import FoundFile
from shardmill.beam_jobs.tables.digests import table_digest
from shardmill.beam_jobs.tables.text_columns import share_empty_texts
from shardmill.infra.arguments import checked
from shardmill.infra.format.contract import LabelEditsSummary
from shardmill.infra.storage.filesystem import Storage

_LISTING_FILE = "listing.arrow"
_GROUP_ROWS = 8192  # rows held as Python values at a time


@checked
@dataclass(frozen=True)
class Listing:
    """All files of a source.

    Attributes:
        table: LISTING_SCHEMA and columns of features (shardmill.beam_jobs.tables.features), sorted by URI,
            which is unique; with MEMBER_COLUMNS if images are members of containers.
        warnings: about the folder, a sentence each.
        label_edits: what ``source.label_edits`` changed in the table; None without them.
    """

    table: pa.Table
    warnings: list[str] = field(default_factory=list)
    label_edits: LabelEditsSummary | None = None

    def to_read(self) -> pa.Table:
        """Return the rows that are to be read, in order."""
        is_to_read = pc.equal(self.table["status"], Status.TO_READ)
        if pc.all(is_to_read).as_py():
            return self.table  # a filter would copy it
        return self.table.filter(is_to_read)

    def digest(self) -> str:
        """Return the SHA-256 (hexadecimal) of all rows: equal exactly if no file has changed."""
        at = LISTING_SCHEMA.get_field_index("status")
        outcomes = outcomes_of(self.table["status"])
        return table_digest(_with_plain_texts(self.table.set_column(at, "outcome", outcomes)))


def _with_plain_texts(table: pa.Table) -> pa.Table:
    """The table without dictionaries: a digest would cover their numbers, not their texts."""
    kinds = ((field, pa.types.is_dictionary(field.type)) for field in table.schema)
    return table.cast(
        pa.schema(pa.field(field.name, pa.string()) if is_coded else field for field, is_coded in kinds)
    )


@checked
def rows_of_files(files: Sequence[FoundFile], schema: pa.Schema = LISTING_SCHEMA) -> pa.RecordBatch:
    """Return files as rows without label, split and group.

    The status is settled for files that are ignored or cannot be looked at.

    Args:
        files: the files.
        schema: LISTING_SCHEMA, or MEMBER_LISTING_SCHEMA.
    """
    refs = [file.ref for file in files]
    status, reasons, messages = zip(*map(_settled, files), strict=True) if files else ((), (), ())
    unknown = [None] * len(files)
    columns = {
        "uri": [ref.uri for ref in refs],
        "size_bytes": [ref.size_bytes for ref in refs],
        "mtime_ns": [ref.mtime_ns for ref in refs],
        "label": unknown,
        "split": unknown,
        "group": unknown,
        "status": status,
        "reason": reasons,
        "message": messages,
        "container": [ref.container for ref in refs],
        "position": [ref.position for ref in refs],
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema=schema)


def _settled(file: FoundFile) -> tuple[Status, str | None, str | None]:
    """Status, reason and message as far as the walk settles them."""
    if file.ignored_by is not None:
        return Status.FILTERED, IGNORED, f"the pattern {file.ignored_by!r} of filter.ignore names it"
    if file.fault is not None:
        status = Status.FILTERED if file.fault.reason in FILTER_REASONS else Status.QUARANTINED
        return status, file.fault.reason, file.fault.message
    return Status.TO_READ, None, None


def status_of(reasons: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the status that each reason has: int8 [N], to be read where there is none."""
    is_filtered = pc.is_in(reasons, pa.array(sorted(FILTER_REASONS)))
    lost = pc.if_else(is_filtered, int(Status.FILTERED), int(Status.QUARANTINED))
    return pc.if_else(pc.is_null(reasons), int(Status.TO_READ), lost).cast(pa.int8())


def write_listing(spool: Storage, table: pa.Table) -> None:
    """Write the table of a listing to the spool, so that memory need not hold it meanwhile."""
    with spool.atomic_writer(_LISTING_FILE) as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)


def read_listing(spool: Storage) -> Listing:
    """Read the listing that ``write_listing`` wrote; on a local disk it is mapped, and loaded as used."""
    local = spool.local_path(_LISTING_FILE)
    stream = spool.open_input(_LISTING_FILE) if local is None else pa.memory_map(str(local))
    with stream, pa.ipc.open_file(stream) as reader:
        return Listing(share_empty_texts(reader.read_all()))


def group_by_pattern(table: pa.Table, pattern: str) -> pa.Table:
    """Set the group of each file to what the first parenthesis of a pattern matches in its URI.

    If the pattern does not match, or the parenthesis matches nothing, a file keeps the group that its kind of
    source gave it.

    Args:
        table: LISTING_SCHEMA.
        pattern: regular expression with a parenthesis.

    Returns:
        LISTING_SCHEMA.
    """
    search = re.compile(pattern).search
    chunks = []
    for batch in table.select(["uri", "group"]).to_batches(max_chunksize=_GROUP_ROWS):
        found = (search(uri) for uri in batch.column("uri").to_pylist())
        matched = pa.array([match[1] or None if match else None for match in found], pa.string())
        chunks.append(pc.coalesce(matched, batch.column("group")))
    at = table.schema.get_field_index("group")
    return table.set_column(at, table.schema.field(at), pa.chunked_array(chunks, pa.string()))
