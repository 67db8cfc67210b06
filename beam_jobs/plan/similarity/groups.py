"""Groups of records that belong together: by a key, or because they look the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.plan.columns import Rows
from shardmill.beam_jobs.tables.columns import one_chunk

Int32 = npt.NDArray[np.int32]


class Components:
    """The connected components of a growing graph. The smallest node of a component identifies it.

    Hooking and pointer jumping after Shiloach and Vishkin, "An O(log n) parallel connectivity algorithm",
    1982.

    Attributes:
        root: int32 [N], the smallest node of each node's component.
    """

    def __init__(self, num_nodes: int) -> None:
        self.root: Int32 = np.arange(num_nodes, dtype=np.int32)

    def connect(self, one: Int64, other: Int64) -> None:
        """Add edges: int64 [E] each, the nodes at their ends."""
        while True:
            roots_one, roots_other = self.root[one], self.root[other]
            apart = roots_one != roots_other
            if not apart.any():
                return
            one, other = one[apart], other[apart]
            low = np.minimum(roots_one[apart], roots_other[apart])
            high = np.maximum(roots_one[apart], roots_other[apart])
            # Several edges may pull one component to several others. It follows one of them now; the other
            # edges stay for the next round.
            np.minimum.at(self.root, high, low)
            self._flatten()

    def _flatten(self) -> None:
        while True:
            jumped = self.root[self.root]
            if np.array_equal(jumped, self.root):
                return
            self.root = jumped


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
