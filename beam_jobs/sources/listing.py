"""The listing of a source: one row per file (LISTING_SCHEMA), in the order of URIs.

What a kind of source returns is checked before anything is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import FILTER_REASONS, IGNORED
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, OUTCOME_OF_STATUS, Status, outcomes_of
from shardmill.beam_jobs.sources.files.walking import FoundFile
from shardmill.beam_jobs.tables.columns import share_empty_texts
from shardmill.beam_jobs.tables.ids import table_digest
from shardmill.infra.arguments import checked
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.contract import SPLITS, LabelEditsSummary
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
def rows_of_files(files: Iterable[FoundFile], schema: pa.Schema = LISTING_SCHEMA) -> pa.RecordBatch:
    """Return files as rows without label, split and group.

    The status is settled for files that are ignored or cannot be looked at.

    Args:
        files: the files; none is kept, as many objects at a time would keep the garbage collection busy.
        schema: LISTING_SCHEMA, or MEMBER_LISTING_SCHEMA.
    """
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    place = "container" in columns
    add = [columns[name].append for name in ("uri", "size_bytes", "mtime_ns", "status", "reason", "message")]
    for file in files:
        ref = file.ref
        for append, value in zip(add, (*ref[:3], *_settled(file)), strict=True):
            append(value)
        if place:
            columns["container"].append(ref.container)
            columns["position"].append(ref.position)
    unknown = [None] * len(columns["uri"])
    columns |= dict.fromkeys(("label", "split", "group"), unknown)
    return pa.RecordBatch.from_pydict(columns, schema=schema)


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


_NEVER_NULL = ("uri", "size_bytes", "mtime_ns", "status")
_STATES = pa.array([Status.TO_READ, *OUTCOME_OF_STATUS], pa.int8())


def check_listing(listing: object, config: PrepareConfig) -> Listing:
    """Return the listing of a kind of source, if it is as ``Listing`` and LISTING_SCHEMA say.

    Raises:
        ConfigError: it is not; names the kind and the first row at fault.
    """
    kind = config.source.kind
    if not isinstance(listing, Listing):
        _refuse(kind, f"it returned a {type(listing).__name__}", "return a Listing")
    table = listing.table
    _check_columns(table, kind)
    uris, status = table["uri"], table["status"]
    for name in _NEVER_NULL:
        _check(table, pc.is_null(table[name]), kind, f"has no {name}", f"give each row its {name}")
    is_known = pc.is_in(status, value_set=_STATES)
    words = "TO_READ, FILTERED or QUARANTINED"
    _check(table, pc.invert(is_known), kind, "has an unknown status", f"its status must be {words}")
    is_late = pc.less_equal(uris.slice(1), uris.slice(0, max(0, table.num_rows - 1)))
    remedy = "give each row a URI of its own, and sort the rows by it: table.sort_by('uri')"
    _check(table, is_late, kind, "does not come after the row before it", remedy, first=1)
    is_to_read = pc.equal(status, Status.TO_READ)
    is_unexplained = pc.and_(pc.invert(is_to_read), pc.is_null(table["reason"]))
    remedy = "give rows that are not TO_READ one of the reasons of beam_jobs/schemas.py"
    _check(table, is_unexplained, kind, "is not to be read, and has no reason", remedy)
    _check_splits(table, kind)
    if config.source.label_kind == "class":
        is_bare = pc.and_(is_to_read, pc.is_null(table["label"]))
        remedy = (
            "give it a label, or quarantine it with the reason 'no_class'; or say --set source.labels=none"
        )
        _check(table, is_bare, kind, "is to be read, and has no label", remedy)
    return listing


def _check_columns(table: pa.Table, kind: str) -> None:
    for wanted in LISTING_SCHEMA:
        if wanted.name not in table.column_names:
            _refuse(kind, f"its listing has no column {wanted.name!r}", "make the table with LISTING_SCHEMA")
        found = table.schema.field(wanted.name).type
        plain = found.value_type if pa.types.is_dictionary(found) else found
        if plain != wanted.type:
            words = f"its column {wanted.name!r} is of type {found}, not {wanted.type}"
            _refuse(kind, words, "make the table with LISTING_SCHEMA")


def _check_splits(table: pa.Table, kind: str) -> None:
    unknown = set(pc.unique(table["split"]).to_pylist()) - {*SPLITS, None}
    if unknown:
        split = min(unknown)
        words = f"has the split {split!r}"
        _check(table, pc.equal(table["split"], split), kind, words, f"a split is null or {', '.join(SPLITS)}")


def _check(
    table: pa.Table, is_wrong: pa.ChunkedArray, kind: str, words: str, remedy: str, *, first: int = 0
) -> None:
    """Refuse the listing if a row is wrong.

    Args:
        table: the listing.
        is_wrong: bool, a value for each row from ``first`` on.
        kind: kind of the source.
        words: the fault, as the end of a sentence that begins with the row.
        remedy: what to do about it.
        first: number of the first row that was checked.
    """
    at = pc.index(is_wrong, True).as_py()
    if at >= 0:
        row = at + first
        _refuse(kind, f"row {row:,} of its listing (uri {table['uri'][row].as_py()!r}) {words}", remedy)


def _refuse(kind: str, words: str, remedy: str) -> NoReturn:
    if "." not in kind:
        remedy = f"this is a defect of Shardmill, please report it ({remedy})"
    raise ConfigError(f"source.kind = {kind!r}: {words}", remedy)
