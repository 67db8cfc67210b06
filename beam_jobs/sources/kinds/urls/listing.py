"""The addresses of a table as a listing, before and after they are fetched."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import MasksConfig, PrepareConfig
from shardmill.beam_jobs.reasons import MASK_FILE, MISSING_MASK, NO_MASK, UNMASKED
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, Status
from shardmill.beam_jobs.sources.class_names import class_numbers, wanted_classes
from shardmill.beam_jobs.sources.fetching.addresses import Address, BadAddress, read_address
from shardmill.beam_jobs.sources.fetching.rounds import REQUESTS_SCHEMA
from shardmill.beam_jobs.sources.fetching.store import ANSWERS_SCHEMA, content_tag
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table import class_warnings, row_prefixes
from shardmill.beam_jobs.sources.kinds.table.rows import name_rows, settings_warnings, understand
from shardmill.beam_jobs.sources.kinds.table.settling import settle
from shardmill.beam_jobs.sources.kinds.table.tables import find_tables, read_tables
from shardmill.beam_jobs.sources.kinds.table.typed.labels import MASK_PATH
from shardmill.beam_jobs.sources.listing import Listing, status_of
from shardmill.beam_jobs.sources.masks import attach_masks, with_reason
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import NotFoundError
from shardmill.infra.progress import log

_NO_CONTACT = (
    "source.urls.contact is not set, so the operators of servers cannot reach you: name a page or an e-mail "
    "address there"
)


@dataclass(frozen=True)
class UrlTable:
    """A table of addresses.

    Attributes:
        requests: REQUESTS_SCHEMA, each address once, sorted by URI; those of masks too.
        listing: every address and every row without one, as if no address had been fetched. Masks are not
            attached to their images yet.
    """

    requests: pa.Table
    listing: Listing

    def wanted(self) -> pa.Table:
        """Return the requests for images that are to be read: REQUESTS_SCHEMA."""
        return self.requests.filter(
            pc.is_in(self.requests["uri"], self.listing.to_read()["uri"].combine_chunks())
        )


def read_urls(folder: SourceFolder, config: PrepareConfig) -> UrlTable:
    """Read the addresses of the table, and the labels, splits and groups beside them.

    Raises:
        NotFoundError: there is no such table, no row in it, or no address.
        ConfigError: the table cannot be read as the settings say, or lacks a column that they name.
    """
    columns, kind, prefix = config.source.columns, config.source.label_kind, config.source.table.prefix
    tables = find_tables(folder, config.source.table)
    numbers = class_numbers(columns, folder)
    raw, requests = _addresses(name_rows(read_tables(tables, config.source), numbers), prefix)
    unfetched = _unfetched(requests["uri"])
    rows = understand(raw, columns, None, row_prefixes(tables, unfetched), kind, numbers.values())
    if not requests.num_rows:
        raise NotFoundError(
            f"no row of the table holds an address; {rows['message'][0]}",
            "look at source.columns.image and source.table.prefix",
        )
    named = pc.fill_null(pc.index_in(rows["path"].combine_chunks(), requests["uri"].combine_chunks()), -1)
    named = np.where(rows["path"].is_valid().to_numpy(), named.to_numpy(zero_copy_only=False), -1)
    settled = settle(unfetched, rows, named.astype(np.int64))
    classes = settled.classes(kind)
    listed = settled.listing(wanted_classes(classes, config))
    log(f"{rows.num_rows:,} rows of the table name {requests.num_rows:,} addresses")
    if kind == "mask":
        listed, requests = _with_addresses_of_masks(listed, requests, prefix, config.source.masks)
    contact = [] if config.source.urls.contact else [_NO_CONTACT]
    warnings = [*contact, *settings_warnings(raw, columns), *class_warnings(classes)]
    return UrlTable(requests, Listing(listed, warnings))


def _addresses(raw: pa.Table, prefix: str) -> tuple[pa.Table, pa.Table]:
    """Read the addresses of rows.

    Args:
        raw: ROWS_SCHEMA.
        prefix: stands before paths that are no address by themselves.

    Returns:
        The rows with the URI of each address as path, or the fault of one that cannot be used; and the
        addresses, each once (REQUESTS_SCHEMA).
    """
    texts = pc.unique(raw["path"]).drop_null()
    uris: list[str | None] = []
    faults: list[str | None] = []
    found: dict[str, Address] = {}
    for text in texts.to_pylist():
        try:
            address = read_address(text if "://" in text or not prefix else f"{prefix.rstrip('/')}/{text}")
        except BadAddress as error:
            uris.append(None)
            faults.append(str(error))
        else:
            found.setdefault(address.uri, address)
            uris.append(address.uri)
            faults.append(None)
    at = pc.index_in(raw["path"], texts, skip_nulls=True)
    fault = pc.coalesce(raw["fault"], pa.array(faults, pa.string()).take(at))
    for name, column in (("path", pa.array(uris, pa.string()).take(at)), ("fault", fault)):
        raw = raw.set_column(raw.schema.get_field_index(name), raw.schema.field(name), column)
    addresses = [found[uri] for uri in sorted(found)]
    columns = [[address.uri for address in addresses], [address.url for address in addresses]]
    hosts = [address.host for address in addresses]
    return raw, pa.table([*columns, hosts], schema=REQUESTS_SCHEMA)


def _unfetched(uris: pa.ChunkedArray) -> pa.Table:
    """Addresses that are still to be fetched: LISTING_SCHEMA without labels."""
    zeros = pa.array(np.zeros(len(uris), np.int64))
    known = {"uri": uris, "size_bytes": zeros, "mtime_ns": zeros}
    known["status"] = pa.array(np.full(len(uris), Status.TO_READ, np.int8))
    columns = [known.get(field.name, pa.nulls(len(uris), field.type)) for field in LISTING_SCHEMA]
    return pa.table(columns, schema=LISTING_SCHEMA)


def last_answers(answers: pa.Table, requests: pa.Table) -> pa.Table:
    """Return the last answer to each request: ANSWERS_SCHEMA, in their order.

    Args:
        answers: ANSWERS_SCHEMA, in the order in which they came.
        requests: REQUESTS_SCHEMA.
    """
    backwards = answers.take(pa.array(np.arange(answers.num_rows)[::-1])).combine_chunks()
    at = pc.index_in(requests["uri"], backwards["uri"].combine_chunks())
    return backwards.take(at).combine_chunks().cast(ANSWERS_SCHEMA)


def fill_in(listing: Listing, answers: pa.Table) -> Listing:
    """Return a listing with the sizes and digests of images, and the reasons where there is none.

    Args:
        listing: of ``read_urls``.
        answers: ANSWERS_SCHEMA, one for each row that is to be read.
    """
    table = listing.table
    at = pc.index_in(table["uri"], answers["uri"].combine_chunks())
    is_asked = pc.and_(pc.is_valid(at), pc.equal(table["status"], Status.TO_READ))
    digests = answers["sha256"].to_pylist()
    tags = pa.array([0 if digest is None else content_tag(digest) for digest in digests], pa.int64())
    found = {
        "size_bytes": answers["size_bytes"],
        "mtime_ns": tags,
        "status": status_of(answers["reason"]),
        "reason": answers["reason"],
        "message": answers["message"],
    }
    for name, column in found.items():
        filled = pc.if_else(is_asked, column.take(at), table[name])
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), filled)
    return replace(listing, table=table)


_COLUMN = PREFIX + MASK_PATH


def _with_addresses_of_masks(
    listed: pa.Table, requests: pa.Table, prefix: str, settings: MasksConfig
) -> tuple[pa.Table, pa.Table]:
    """Add the addresses of masks to those of images.

    Args:
        listed: LISTING_SCHEMA and columns of features, with the masks as the table names them.
        requests: REQUESTS_SCHEMA, of the images.
        prefix: stands before paths that are no address by themselves.
        settings: settings of masks; decide on images without a mask.

    Returns:
        The listing with a row for each mask that is no image too, and the URIs of masks in place of their
        names; and the requests for all.
    """
    is_read = pc.equal(listed["status"], int(Status.TO_READ))
    named = pc.if_else(is_read, pc.utf8_trim_whitespace(listed[_COLUMN]), pa.scalar(None, pa.string()))
    texts = pc.unique(named).drop_null()
    found, faults = _addresses_of_masks(texts.to_pylist(), prefix)
    uris = pa.array([None if one is None else one.uri for one in found], pa.string())
    at = pc.index_in(named, texts, skip_nulls=True)
    messages = pa.array(faults, pa.string()).take(at).combine_chunks()
    bad = np.flatnonzero(pc.is_valid(messages).to_numpy(zero_copy_only=False))
    listed = with_reason(listed, bad, MISSING_MASK, messages.take(pa.array(bad)))
    without = np.flatnonzero(pc.and_(is_read, pc.is_null(named)).to_numpy())
    reason = UNMASKED if settings.unmasked == "leave_out" else NO_MASK
    listed = with_reason(listed, without, reason, "it has no mask")
    place = listed.schema.get_field_index(_COLUMN)
    listed = listed.set_column(place, listed.schema.field(place), uris.take(at))
    known = set(requests["uri"].to_pylist())
    more = {one.uri: one for one in found if one is not None and one.uri not in known}
    columns = [[getattr(more[uri], name) for uri in sorted(more)] for name in requests.schema.names]
    requests = pa.concat_tables([requests, pa.table(columns, schema=requests.schema)]).sort_by("uri")
    rows = pa.concat_tables([listed, _rows_of(sorted(more), listed.schema)])
    return rows.sort_by("uri").combine_chunks(), requests.combine_chunks()


def attached(listing: Listing, settings: MasksConfig) -> Listing:
    """Attach the fetched masks to the fetched images."""
    table = listing.table
    is_read = pc.equal(table["status"], int(Status.TO_READ))
    images = np.flatnonzero(pc.and_(is_read, pc.is_valid(table[_COLUMN])).to_numpy())
    uris = table[_COLUMN].take(pa.array(images))
    masks = pc.fill_null(pc.index_in(uris, table["uri"].combine_chunks()), -1).to_numpy().astype(np.int64)
    is_mask = pc.is_null(table[_COLUMN])
    table = attach_masks(table, images, masks, settings)
    unused = pc.and_(pc.equal(table["status"], int(Status.TO_READ)), is_mask)
    words = "the mask of an image that is not read"
    table = with_reason(table, np.flatnonzero(unused.to_numpy()), MASK_FILE, words)
    return replace(listing, table=table.drop_columns([_COLUMN]))


def _addresses_of_masks(texts: list[str], prefix: str) -> tuple[list[Address | None], list[str | None]]:
    """Read addresses; return also the faults of those that are invalid."""
    found: list[Address | None] = []
    faults: list[str | None] = []
    for text in texts:
        try:
            found.append(
                read_address(text if "://" in text or not prefix else f"{prefix.rstrip('/')}/{text}")
            )
            faults.append(None)
        except BadAddress as error:
            found.append(None)
            faults.append(f"of its mask: {error}")
    return found, faults


def _rows_of(uris: list[str], schema: pa.Schema) -> pa.Table:
    """Return masks that are still to be fetched, as rows of a listing."""
    zeros = pa.array(np.zeros(len(uris), np.int64))
    known = {"uri": pa.array(uris, pa.string()), "size_bytes": zeros, "mtime_ns": zeros}
    known["status"] = pa.array(np.full(len(uris), int(Status.TO_READ), np.int8))
    return pa.table(
        [known.get(field.name, pa.nulls(len(uris), field.type)) for field in schema], schema=schema
    )
