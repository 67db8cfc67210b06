"""Numbers in place of the names of the classes of objects."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.format.known_features import NO_CLASS, OBJECT_FEATURES, OBJECT_LABELS


def number_objects(listing: pa.Table, classes: Sequence[str]) -> pa.Table:
    """Return a listing with the numbers of the objects' classes; one without objects is returned unchanged.

    Args:
        listing: LISTING_SCHEMA and columns of features.
        classes: names by number. Objects of files that become no record may have others.
    """
    at = listing.schema.get_field_index(PREFIX + OBJECT_LABELS)
    if at < 0:
        return listing
    lists = one_chunk(listing.column(at))
    codes = pc.fill_null(pc.index_in(lists.flatten(), pa.array(classes, pa.string())), NO_CLASS)
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
    mask = pc.is_null(lists) if lists.null_count else None
    numbered = pa.ListArray.from_arrays(offsets, codes.cast(pa.int64()), mask=mask)
    (feature,) = (feature for feature in OBJECT_FEATURES if feature.name == OBJECT_LABELS)
    field = feature.arrow_field(PREFIX)
    return listing.set_column(at, field, pa.chunked_array([numbered.cast(field.type)]))
