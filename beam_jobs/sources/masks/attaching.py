"""Attach masks to the images of a listing, and say what becomes of mask files and of images without one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import MasksConfig
from shardmill.beam_jobs.reasons import (
    FILTER_REASONS,
    MASK_FILE,
    MISSING_MASK,
    NO_MASK,
    NOT_IN_TABLE,
    UNMASKED,
)
from shardmill.beam_jobs.schemas import MASK_COLUMNS, MASK_MEMBER_COLUMNS, MEMBER_COLUMNS, Status

Int64 = npt.NDArray[np.int64]

_FILE_COLUMNS = ("uri", "size_bytes", "mtime_ns")  # the first of MASK_COLUMNS, in their order


def attach_masks(listing: pa.Table, images: Int64, masks: Int64, settings: MasksConfig) -> pa.Table:
    """Attach its mask to each image; an image without a usable mask is not read.

    Args:
        listing: LISTING_SCHEMA and maybe columns of features, with a row for each mask.
        images: int64 [N], rows of the images that are to be read, rising.
        masks: int64 [N], row of the mask of each image; -1 if there is none.
        settings: settings of masks; decide on images without a mask.

    Returns:
        The listing with MASK_COLUMNS, and MASK_MEMBER_COLUMNS if it has MEMBER_COLUMNS. The rows of masks
        are filtered.
    """
    reason = UNMASKED if settings.unmasked == "leave_out" else NO_MASK
    listing = with_reason(listing, images[masks < 0], reason, "it has no mask")
    images, masks = images[masks >= 0], masks[masks >= 0]
    is_usable = _are_usable(listing, masks) & (masks != images)
    unusable = pa.array(masks[~is_usable])
    faults = pc.coalesce(listing["message"].take(unusable), pa.scalar("it is the image itself"))
    messages = pc.binary_join_element_wise("its mask ", listing["uri"].take(unusable), ": ", faults, "")
    listing = with_reason(listing, images[~is_usable], MISSING_MASK, messages)
    images, masks = images[is_usable], masks[is_usable]
    of_mask, first = np.unique(masks, return_index=True)
    is_no_image = ~np.isin(of_mask, images)
    shown = listing["uri"].take(pa.array(images[first[is_no_image]]))
    words = pc.binary_join_element_wise("the mask of ", shown, "")
    listing = with_reason(listing, of_mask[is_no_image], MASK_FILE, words)
    places = np.full(listing.num_rows, -1, np.int64)
    places[images] = masks
    at = pa.array(places, mask=places < 0)
    columns = [*zip(MASK_COLUMNS, _FILE_COLUMNS, strict=True)]
    if "container" in listing.schema.names:
        columns += zip(MASK_MEMBER_COLUMNS, (field.name for field in MEMBER_COLUMNS), strict=True)
    for field, name in columns:
        listing = listing.append_column(field, listing[name].take(at))
    return listing


def with_reason(
    listing: pa.Table, rows: Int64, reason: str, messages: str | pa.Array | pa.ChunkedArray
) -> pa.Table:
    """Return a listing in which some rows are filtered or quarantined for a reason.

    Args:
        listing: LISTING_SCHEMA and maybe more.
        rows: int64 [N], distinct.
        reason: one of shardmill.beam_jobs.schemas.
        messages: one for all rows, or string [N].
    """
    if not len(rows):
        return listing
    if isinstance(messages, str):
        messages = pa.array([messages])
        number = np.zeros(len(rows), np.int64)
    else:
        number = np.arange(len(rows))
    places = np.full(listing.num_rows, -1, np.int64)
    places[rows] = number
    here = pa.array(places >= 0)
    status = Status.FILTERED if reason in FILTER_REASONS else Status.QUARANTINED
    outcomes = {
        "status": pa.scalar(int(status), pa.int8()),
        "reason": pa.scalar(reason),
        "message": messages.take(pa.array(places, mask=places < 0)),
    }
    for name, value in outcomes.items():
        at = listing.schema.get_field_index(name)
        listing = listing.set_column(at, listing.schema.field(at), pc.if_else(here, value, listing[name]))
    return listing


def _are_usable(listing: pa.Table, masks: Int64) -> npt.NDArray[np.bool_]:
    """Return which files can be read, whether or not a table names them as images: bool [N]."""
    rows = pa.array(masks)
    is_read = pc.equal(listing["status"].take(rows), Status.TO_READ)
    unnamed = pc.fill_null(pc.equal(listing["reason"].take(rows), NOT_IN_TABLE), False)
    return np.asarray(pc.or_(is_read, unnamed).to_numpy(), np.bool_)
