"""Records that belong together: exact duplicates, and groups by a key or by looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import Rows, rows_where
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.ids import UInt64, record_ids
from shardmill.infra.errors import DataError
from shardmill.infra.format.contract import LabelConflict
from shardmill.infra.similarity.connected import Components


@dataclass(frozen=True)
class Files:
    """The files that have a stored image, in the order of their URIs.

    Attributes:
        rows: int32 [F], row of each in the listing.
        places: int32 [F], row of each in the facts.
        digests: uint8 [rows of facts, 32], SHA-256.
        uris: string [rows of the listing].
    """

    rows: Rows
    places: Rows
    digests: npt.NDArray[np.uint8]
    uris: pa.ChunkedArray

    def ids(self) -> UInt64:
        """Return the record id of each file: uint64 [F]."""
        return record_ids(self.digests)[self.places]

    def uri(self, file: int) -> str:
        """Return the URI of one file."""
        return str(self.uris[int(self.rows[file])].as_py())


@dataclass(frozen=True)
class Duplicates:
    """The files that become records, and the files that repeat a record.

    Attributes:
        kept: int32 [K], positions of the files that become records, rising.
        repeats: int64 [R], positions of the others, rising.
        record_of_repeat: int64 [R], the position in ``kept`` of the record that each of these repeats.
    """

    kept: Rows
    repeats: Int64
    record_of_repeat: Int64

    def record_of(self) -> Int64:
        """Return the position in ``kept`` of the record that each file became or repeats: int64 [F]."""
        found = np.empty(len(self.kept) + len(self.repeats), np.int64)
        found[self.kept] = np.arange(len(self.kept))
        found[self.repeats] = self.record_of_repeat
        return found


def find_duplicates(files: Files) -> Duplicates:
    """Group files by content. The file with the smallest URI of each group becomes the record.

    Raises:
        DataError: two different contents have the same record id.
    """
    ids = files.ids()
    order = np.argsort(ids, kind="stable")  # so the first of equal ids is the smallest position
    ordered = ids[order]
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    opens_run = np.ones(len(repeated), np.bool_)
    opens_run[1:] = repeated[1:] != repeated[:-1] + 1
    first = (repeated[opens_run] - 1)[np.cumsum(opens_run) - 1]
    repeats, originals = order[repeated], order[first]
    by_position = np.argsort(repeats)
    repeats, originals = repeats[by_position], originals[by_position]
    differs = files.digests[files.places[repeats]] != files.digests[files.places[originals]]
    differing = np.flatnonzero(differs.any(axis=1))
    if len(differing):
        one, other = repeats[differing[0]], originals[differing[0]]
        raise DataError(
            f"{files.uri(one)} and {files.uri(other)} differ, but share the record id {ids[one]:016x}",
            "take one of them out of the source: ids are the first 64 bits of a SHA-256",
        )
    is_kept = np.ones(len(ids), np.bool_)
    is_kept[repeats] = False
    kept = rows_where(is_kept)
    return Duplicates(kept, repeats, np.searchsorted(kept, originals))


def find_label_conflicts(files: Files, labels: pa.DictionaryArray, found: Duplicates) -> list[LabelConflict]:
    """Find contents that occur under several labels.

    Args:
        files: the files that have a stored image.
        labels: name of the class of each file of the listing.
        found: the duplicates among the files.

    Returns:
        The conflicts in the order of the URIs that were kept; the first label of each is the record's.
    """
    originals = found.kept[found.record_of_repeat]
    rows = files.rows
    differs = pc.not_equal(
        labels.indices.take(pa.array(rows[found.repeats])), labels.indices.take(pa.array(rows[originals]))
    )
    contested = set(originals[np.asarray(differs.to_numpy(zero_copy_only=False), np.bool_)].tolist())
    members: dict[int, list[int]] = {original: [original] for original in sorted(contested)}
    for repeat, original in zip(found.repeats.tolist(), originals.tolist(), strict=True):
        if original in contested:
            members[original].append(repeat)
    return [
        LabelConflict(
            sha256=files.digests[files.places[original]].tobytes().hex(),
            uris=[files.uri(file) for file in group],
            labels=list(dict.fromkeys(labels[int(rows[file])].as_py() for file in group)),
        )
        for original, group in members.items()
    ]


Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """Groups of at least two records; a record may be in several.

    The memberships are columns, sorted by group.

    Attributes:
        records: int64 [E], the position of a record.
        groups: int64 [E], the number of a group that it is in, rising.
        count: number of groups.
        labels: int64 [count], the label that the records of each group share.
        order: int64 [E], the position of each membership in the arguments of ``of``.
    """

    records: Int64
    groups: Int64
    count: int
    labels: Int64
    order: Int64

    @classmethod
    def of(cls, records: Int64, labels: Int64 | Rows) -> Self:
        """Group the records that have a label in common.

        Args:
            records: int64 [M], positions. The same pair of record and label may occur more than once.
            labels: int64 [M].
        """
        order = np.lexsort((records, labels))
        records, labels = records[order], labels[order]
        repeated = np.zeros(len(order), np.bool_)
        repeated[1:] = (records[1:] == records[:-1]) & (labels[1:] == labels[:-1])
        order, records, labels = order[~repeated], records[~repeated], labels[~repeated]
        opens = np.ones(len(labels), np.bool_)
        opens[1:] = labels[1:] != labels[:-1]
        sizes = np.diff(np.append(np.flatnonzero(opens), len(labels)))
        shared = np.repeat(sizes > 1, sizes)
        groups = np.cumsum(opens[shared]) - 1
        names = labels[opens][sizes > 1].astype(np.int64)
        return cls(records[shared], groups, int((sizes > 1).sum()), names, order[shared])

    @classmethod
    def none(cls) -> Self:
        """Return no groups."""
        return cls.of(np.empty(0, np.int64), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.records)


def key_groups(keys: pa.ChunkedArray, record_of: Int64) -> tuple[Groups, pa.Array]:
    """Group the records whose files have a key in common.

    Args:
        keys: string [F], the key of each file; null if it has none.
        record_of: int64 [F], the record that each file became or repeats.

    Returns:
        The groups, and the key of each.
    """
    if keys.null_count == len(keys):
        return Groups.none(), pa.array([], pa.string())
    encoded = one_chunk(keys).dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1).to_numpy(), np.int64)
    keyed = np.flatnonzero(codes >= 0)
    groups = Groups.of(record_of[keyed], codes[keyed])
    return groups, encoded.dictionary.take(pa.array(groups.labels)).cast(pa.string())


def units_of(num_records: int, kinds: Sequence[Groups]) -> Rows | None:
    """Find the records that must stay together, since a chain of groups connects them.

    Returns:
        int32 [N], the first record of each record's unit; None if every record is a unit of its own.
    """
    if not any(len(groups) for groups in kinds):
        return None
    components = Components(num_records)
    for groups in kinds:
        firsts = groups.records[np.searchsorted(groups.groups, np.arange(groups.count))]
        components.connect(groups.records, firsts[groups.groups])
    return components.root
