"""Records, classes and shards of the previous version that a plan builds on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.plan.shards import HeldShards
from shardmill.beam_jobs.tables.columns import find_ids
from shardmill.infra.format.known_features import LabelKind


@dataclass(frozen=True)
class PreviousRecords:
    """The records of the previous version, and its classes.

    Attributes:
        ids: uint64 [N], record ids, rising.
        splits: int8 [N], index into SPLITS of each.
        classes: names, in the order of its label numbers. As a rule they are kept, and new classes come after
            them, so that the labels of inherited shards stay valid.
        held: its shards, if they may be inherited; None if all records are written anew.
        label_kind: the labels of its records.
        empty: the classes without a record.
    """

    ids: npt.NDArray[np.uint64]
    splits: npt.NDArray[np.int8]
    classes: tuple[str, ...]
    held: HeldShards | None = None
    label_kind: LabelKind = "class"
    empty: frozenset[str] = frozenset()

    def of_kind(self, kind: LabelKind) -> PreviousRecords:
        """Return what a version with labels of a kind builds on: classes and shards only of the same kind."""
        if kind == self.label_kind:
            return self
        return replace(self, classes=(), held=None, empty=frozenset())

    def number_classes(self, found: Collection[str], *, drop_empty: bool) -> list[str]:
        """Return the names of all classes by their numbers.

        Args:
            found: classes that the new version has records of.
            drop_empty: whether classes without a record in both versions are left out.
        """
        left_out = self.empty.difference(found) if drop_empty else ()
        known = [name for name in self.classes if name not in left_out]
        return known + sorted(set(found).difference(known))

    def numbered_as(self, classes: Sequence[str]) -> PreviousRecords:
        """Return these records for a version of other classes: no shards if a class has another number."""
        if tuple(classes[: len(self.classes)]) == self.classes:
            return self
        return replace(self, held=None)

    def split_of(self, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int8]:
        """Return the split that each record had: int8 [M], -1 if the version has no such record.

        Args:
            ids: uint64 [M].
        """
        if not len(self.ids):
            return np.full(len(ids), -1, np.int8)
        at, found = find_ids(self.ids, ids)
        return np.where(found, self.splits[at], np.int8(-1)).astype(np.int8)
