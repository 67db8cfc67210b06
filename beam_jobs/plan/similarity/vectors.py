"""Near-duplicates by looks, and by the vectors that a model of the user's gave the images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import GroupsConfig
from shardmill.beam_jobs.plan.similarity.groups import Groups
from shardmill.beam_jobs.plan.similarity.near_duplicates import NearDuplicates, find_near_duplicates
from shardmill.beam_jobs.tables.ids import UInt64, id_text
from shardmill.beam_jobs.tables.vectors import (
    Float32,
    Float64,
    Int64,
    Vectors,
    dots,
    rounded,
    squared_lengths,
)
from shardmill.infra.errors import ConfigError
from shardmill.infra.similarity.connected import Components

# The work grows with the square of this number: 10 minutes or so on two cores, at 512 dimensions.
MAX_VECTORS = 250_000

_ROWS, _COLUMNS = 1_024, 8_192  # size of a block of the product
_MARGIN = 1e-3  # single precision may be off by so much
_PAIRS_AT_A_TIME = 1 << 13
# Of a group of so many records, so many go on searching.
_SEARCHING = 32
# A pair within a group is not compared again if both records have a neighbour that differs less.
_CLOSE = 0.02


@dataclass(frozen=True)
class AlikeRecords:
    """Records whose vectors are near each other.

    Attributes:
        component: int32 [N], the smallest record that each is connected with.
        apart: float64 [N], 1 less the cosine with the nearest other record; infinite if none is near.
    """

    component: npt.NDArray[np.int32]
    apart: Float64


def _vector_rows(vectors: Vectors, ids: pa.Array, uris: pa.ChunkedArray) -> Int64:
    """Return the vector of each record: int64 [N], -1 if it has none.

    Args:
        vectors: by ids or by URIs.
        ids: string [N].
        uris: string [N].
    """
    found = pc.index_in(ids if vectors.key == "id" else uris, vectors.keys)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)


def find_alike(values: Float32, min_similarity: float) -> AlikeRecords:
    """Find the vectors whose cosine is at least ``min_similarity``.

    Args:
        values: float32 [N, D], finite and not zero.
        min_similarity: the cosine, above 0.

    Raises:
        ConfigError: there are more than MAX_VECTORS.
    """
    if len(values) > MAX_VECTORS:
        raise ConfigError(
            f"groups.embeddings compares all pairs of vectors, and there are {len(values):,}",
            f"at most {MAX_VECTORS:,} are possible; for more, find the groups with an index of nearest "
            "neighbours and give each image its group in a column (source.columns.group)",
        )
    search = _Search(values, min_similarity)
    search.run()
    return AlikeRecords(search.components.root, search.apart)


class _Search:
    """Search for pairs of vectors.

    Attributes:
        components: the records that are connected.
        apart: float64 [N], as in ``AlikeRecords``.
    """

    def __init__(self, values: Float32, min_similarity: float) -> None:
        self._whole = rounded(values)
        self._squares = squared_lengths(self._whole)
        self._scales = (1 / np.sqrt(self._squares)).astype(np.float32)
        self._least = min_similarity
        self._active = np.ones(len(values), np.bool_)
        self.components = Components(len(values))
        self.apart = np.full(len(values), np.inf)

    def run(self) -> None:
        """Compare all pairs."""
        count = len(self._whole)
        for start in range(0, count, _ROWS):
            rows = np.arange(start, min(count, start + _ROWS))
            self._compare(rows, rows)
            self._rest(rows[-1] + 1)
            searching = rows[self._active[rows]]
            for left in range(rows[-1] + 1, count, _COLUMNS):
                self._compare(searching, np.arange(left, min(count, left + _COLUMNS)))

    def _rest(self, stop: int) -> None:
        """Let only the first records of each group among those before ``stop`` go on searching."""
        active = np.flatnonzero(self._active[:stop])
        roots = self.components.root[active]
        order = np.argsort(roots, kind="stable")
        ranks = np.arange(len(order)) - np.searchsorted(roots[order], roots[order])
        self._active[active[order[ranks >= _SEARCHING]]] = False

    def _compare(self, rows: Int64, columns: Int64) -> None:
        near = self._unit(rows) @ self._unit(columns).T >= self._least - _MARGIN
        one, other = np.nonzero(near)
        one, other = rows[one], columns[other]
        once = one < other
        one, other = one[once], other[once]
        for start in range(0, len(one), _PAIRS_AT_A_TIME):
            part = slice(start, start + _PAIRS_AT_A_TIME)
            self._connect(one[part], other[part])

    def _connect(self, one: Int64, other: Int64) -> None:
        connected = self.components.root[one] == self.components.root[other]
        is_open = ~connected | (np.maximum(self.apart[one], self.apart[other]) >= _CLOSE)
        one, other = one[is_open], other[is_open]
        lengths = np.sqrt(self._squares[one] * self._squares[other])
        similarity = dots(self._whole[one], self._whole[other]) / lengths
        near = similarity >= self._least
        one, other, apart = one[near], other[near], np.maximum(0, 1 - similarity[near])
        np.minimum.at(self.apart, one, apart)
        np.minimum.at(self.apart, other, apart)
        self.components.connect(one, other)

    def _unit(self, rows: Int64) -> Float32:
        return np.asarray(self._whole[rows] * self._scales[rows][:, np.newaxis])


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
    at = _vector_rows(vectors, id_text(records.ids), records.uris)
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
