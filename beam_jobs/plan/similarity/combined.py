"""Near-duplicates by looks, and by the vectors that a model of the user's gave the images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import GroupsConfig
from shardmill.beam_jobs.plan.similarity.components import Components
from shardmill.beam_jobs.plan.similarity.groups import Groups
from shardmill.beam_jobs.plan.similarity.near_duplicates import NearDuplicates, find_near_duplicates
from shardmill.beam_jobs.plan.similarity.vectors import AlikeRecords, find_alike, vector_rows
from shardmill.beam_jobs.tables.ids import UInt64, id_text
from shardmill.beam_jobs.tables.vectors import Int64, Vectors
from shardmill.infra.errors import ConfigError


@dataclass(frozen=True)
class RecordsToCompare:
    """The data of records that near-duplicates are found by.

    Attributes:
        looks: binary [N], null where an image has none.
        ids: uint64 [N], record ids.
        uris: string [N].
    """

    looks: pa.ChunkedArray
    ids: UInt64
    uris: pa.ChunkedArray


@dataclass(frozen=True)
class FoundNear:
    """Near-duplicates among records.

    Attributes:
        found: the groups; None if none were looked for.
        num_without_vector: records that lack a vector, if vectors were given.
    """

    found: NearDuplicates | None
    num_without_vector: int = 0


def find_by_looks_and_vectors(
    records: RecordsToCompare, config: GroupsConfig, vectors: Vectors | None
) -> FoundNear:
    """Find near-duplicates by looks and by vectors, as far as either is asked for.

    Args:
        records: the records.
        config: which of them are near-duplicates.
        vectors: None to look for none by vectors.

    Raises:
        ConfigError: the vectors are too many, or all of other images.
    """
    near = find_near_duplicates(records.looks, config) if config.near_duplicates else None
    if vectors is None:
        return FoundNear(near)
    at = vector_rows(vectors, id_text(records.ids), records.uris)
    have = np.flatnonzero(at >= 0)
    if not len(have) and len(at):
        raise ConfigError(
            f"none of the {len(vectors.keys):,} vectors of groups.embeddings.file belongs to a record; the "
            f"first has the {vectors.key} {vectors.keys[0].as_py()!r}",
            "name the images by id, or by uri as source_uri in the index of the dataset",
        )
    alike = find_alike(vectors.values[at[have]], config.embeddings.min_similarity)
    return FoundNear(_joined(near, have, alike), len(at) - len(have))


def _joined(near: NearDuplicates | None, records: Int64, alike: AlikeRecords) -> NearDuplicates:
    """Bring together the groups by looks and the groups by vectors.

    Args:
        near: by looks; None if they were not looked for.
        records: int64 [M], the records that have a vector.
        alike: near-duplicates among those records.
    """
    looking = near.groups.records if near else np.empty(0, np.int64)
    count = 1 + max(looking.max(initial=-1), records.max(initial=-1))
    components, apart = Components(int(count)), np.full(count, np.inf)
    if near:
        firsts = looking[np.searchsorted(near.groups.groups, np.arange(near.groups.count))]
        components.connect(looking, firsts[near.groups.groups])
        apart[looking] = near.distance / 1000
    components.connect(records, records[alike.component])
    apart[records] = np.minimum(apart[records], alike.apart)
    members = np.flatnonzero(apart < np.inf)
    groups = Groups.of(members, components.root[members])
    largest = np.iinfo(np.int8).max
    distance = np.minimum(np.rint(apart[members][groups.order] * 1000), largest).astype(np.int8)
    return NearDuplicates(groups, distance)
