"""Check the listing that a kind of source returns, before anything is made from it."""

from __future__ import annotations

from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, OUTCOME_OF_STATUS, Status
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.contract import SPLITS

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
    for field in LISTING_SCHEMA:
        if field.name not in table.column_names:
            _refuse(kind, f"its listing has no column {field.name!r}", "make the table with LISTING_SCHEMA")
        found = table.schema.field(field.name).type
        plain = found.value_type if pa.types.is_dictionary(found) else found
        if plain != field.type:
            words = f"its column {field.name!r} is of type {found}, not {field.type}"
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
