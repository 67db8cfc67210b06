"""Masks behind addresses: fetched as images are, and then attached to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import MasksConfig
from shardmill.beam_jobs.schemas import MASK_FILE, MISSING_MASK, NO_MASK, UNMASKED, Status
from shardmill.beam_jobs.sources.fetching.addresses import Address, BadAddress, read_address
from shardmill.beam_jobs.sources.kinds.table.typed.labels import MASK_PATH
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.masks.attaching import attach_masks, with_reason
from shardmill.beam_jobs.tables.features import PREFIX

_COLUMN = PREFIX + MASK_PATH


def with_addresses_of_masks(
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
    found, faults = _addresses(texts.to_pylist(), prefix)
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


def _addresses(texts: list[str], prefix: str) -> tuple[list[Address | None], list[str | None]]:
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
