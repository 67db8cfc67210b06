"""Near-duplicates: records whose perceptual hashes differ in few bits, directly or through a chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.plan.columns import Codes, Rows, is_null, rows_where
from beam_jobs.plan.similarity.groups import Groups
from beam_jobs.plan.similarity.hamming import neighbourhoods
from beam_jobs.tables.ids import UInt64, id_text
from infra.format.contract import NEAR_DUPLICATES_SCHEMA, SPLITS

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NearDuplicates:
    """Groups of records that look the same.

    Attributes:
        groups: groups of at least two records.
        distance: int8 [members], bits in which the nearest other member differs.
    """

    groups: Groups
    distance: npt.NDArray[np.int8]


def find_near_duplicates(hashes: pa.ChunkedArray, max_distance: int) -> NearDuplicates:
    """Group the records that look the same.

    Args:
        hashes: uint64 [N], perceptual hash of each record; null if an image has nothing to tell it by, for
            example a single colour. Such an image is in no group.
        max_distance: bits in which the hashes of neighbours in a group may differ.
    """
    known = rows_where(~is_null(hashes))
    distinct, which, shared = _distinct(hashes)
    near = neighbourhoods(distinct, max_distance)
    alone = ~shared & (near.nearest < 0)
    distance = np.where(shared, np.int8(0), near.nearest)
    members = np.flatnonzero(~alone[which])
    which = which[members]
    groups = Groups.of(known[members].astype(np.int64), near.component[which])
    order = groups.order
    return NearDuplicates(groups, distance[which][order])


def _distinct(hashes: pa.ChunkedArray) -> tuple[UInt64, Rows, npt.NDArray[np.bool_]]:
    """Return the distinct hashes, rising; the number of each known hash in them; which of them are shared."""
    values = hashes.drop_null().to_numpy()
    distinct, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return distinct, which.astype(np.int32), counts > 1


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
