"""Find the masks that the rows of a table name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import MasksConfig
from shardmill.beam_jobs.schemas import MISSING_FILE, MISSING_MASK, SEVERAL_FILES, SEVERAL_MASKS, Status
from shardmill.beam_jobs.sources.kinds.table.matching import find_files
from shardmill.beam_jobs.sources.kinds.table.rows import UNDERSTOOD_SCHEMA
from shardmill.beam_jobs.sources.masks.attaching import attach_masks, with_reason

_REASONS = {MISSING_FILE: MISSING_MASK, SEVERAL_FILES: SEVERAL_MASKS}


def attach_named_masks(
    listing: pa.Table, files: pa.Table, paths: pa.ChunkedArray, settings: MasksConfig
) -> pa.Table:
    """Attach to each image the mask that its row names.

    Args:
        listing: LISTING_SCHEMA and columns of features, sorted by URI.
        files: LISTING_SCHEMA, the files of the source as the walk found them.
        paths: string [rows of the listing], path of each mask relative to the source, with or without its
            ending; null if there is none.
        settings: settings of masks; decide on images without a mask.
    """
    images = np.flatnonzero(listing["status"].to_numpy() == Status.TO_READ)
    here = pa.array(images)
    unknown = pa.nulls(len(images), pa.string())
    columns = dict.fromkeys(UNDERSTOOD_SCHEMA.names, unknown)
    columns |= {"path": paths.take(here), "who": listing["uri"].take(here)}
    rows, found = find_files(pa.table(columns, UNDERSTOOD_SCHEMA), files)
    reasons = np.asarray(pc.fill_null(rows["reason"], "").to_numpy(), np.str_)
    for of_file, of_mask in _REASONS.items():
        lost = np.flatnonzero(reasons == of_file)
        listing = with_reason(listing, images[lost], of_mask, rows["message"].take(pa.array(lost)))
    kept = reasons == ""
    uris = files["uri"].take(pa.array(found.files[kept], mask=found.files[kept] < 0))
    masks = pc.fill_null(pc.index_in(uris, listing["uri"].combine_chunks(), skip_nulls=True), -1)
    return attach_masks(listing, images[kept], np.asarray(masks.to_numpy(), np.int64), settings)
