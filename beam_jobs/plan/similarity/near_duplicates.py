"""Near-duplicates: records that look the same, directly or through a chain.

``shardmill.infra.similarity.connected`` finds them by their looks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import GroupsConfig
from shardmill.beam_jobs.plan.columns import Codes, Rows, is_null, rows_where
from shardmill.beam_jobs.plan.similarity.groups import Groups
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.ids import UInt64, id_text
from shardmill.infra.format.contract import NEAR_DUPLICATES_SCHEMA, SPLITS
from shardmill.infra.similarity.connected import connected_looks


@dataclass(frozen=True)
class NearDuplicates:
    """Groups of records that look the same.

    Attributes:
        groups: groups of at least two records.
        distance: int8 [members], thousandths by which the nearest other member differs, 127 at most.
    """

    groups: Groups
    distance: npt.NDArray[np.int8]


def find_near_duplicates(looks: pa.ChunkedArray, config: GroupsConfig) -> NearDuplicates:
    """Group the records that look the same.

    Args:
        looks: binary [N], one or two views of each record; null if an image has nothing to tell it by, for
            example a single colour. Such an image is in no group.
        config: how much images may differ, and which copies are looked for.
    """
    known = rows_where(~is_null(looks))
    component, nearest = connected_looks(
        one_chunk(looks.drop_null() if looks.null_count else looks), config.looks
    )
    members = np.flatnonzero(nearest < np.inf)
    groups = Groups.of(known[members].astype(np.int64), component[members])
    distance = np.rint(nearest[members][groups.order] * 1000).astype(np.int8)
    return NearDuplicates(groups, distance)


def near_duplicates_table(
    found: NearDuplicates,
    hashes: pa.ChunkedArray,
    listing: pa.Table,
    rows: Rows,
    places: Rows,
    ids: UInt64,
    splits: Codes,
) -> pa.Table:
    """Return the table of near-duplicates that is published: NEAR_DUPLICATES_SCHEMA.

    Args:
        found: the groups.
        hashes: uint64, of all files that were read.
        listing: LISTING_SCHEMA.
        rows: int32 [N], row of each record in the listing.
        places: int32 [N], row of each record in ``hashes``.
        ids: uint64 [N], record ids.
        splits: int8 [N], -1 if the record was dropped.
    """
    records, groups = found.groups.records, found.groups.groups
    names = np.full(found.groups.count, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(names, groups, ids[records])
    order = np.lexsort((ids[records], names[groups]))
    members = records[order]
    sources = listing.select(["uri", "label"]).take(pa.array(rows[members]))
    codes = splits[members]
    return pa.table(
        {
            "group": id_text(names[groups[order]]),
            "record_id": id_text(ids[members]),
            "uri": sources["uri"],
            "label": sources["label"],
            "split": pa.array(SPLITS, pa.string()).take(pa.array(codes, mask=codes < 0)),
            "perceptual_hash": hashes.take(pa.array(places[members])),
            "distance": pa.array(found.distance[order]),
        }
    ).cast(NEAR_DUPLICATES_SCHEMA)
