"""What a plan builds on, and the plan as later stages see it, with its rows in memory or on storage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.plan.shards import HeldShards, PlannedShard
from shardmill.beam_jobs.tables.columns import find_ids
from shardmill.infra.format.contract import LabelConflict, Leaks, QualityLimits, SplitStatistics
from shardmill.infra.format.features import Feature
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


@dataclass(frozen=True)
class PlanSummary:
    """Parts of a plan that the manifest holds.

    Attributes:
        classes: names by label: first the classes of the previous version, then new ones, sorted.
        label_conflicts: the same bytes under several labels.
        cross_split_duplicates: duplicates that the source gives another split than the record kept.
        leaks: groups that are divided among splits.
        statistics: split -> figures of its images, inherited ones among them.
        quality: quality flag -> its limits, and the records beyond them.
        features: further features of the records.
        label_kind: the labels of the records.
    """

    classes: list[str]
    label_conflicts: list[LabelConflict]
    cross_split_duplicates: int
    leaks: Leaks
    statistics: dict[str, SplitStatistics]
    quality: dict[str, QualityLimits] = field(default_factory=dict)
    features: list[Feature] = field(default_factory=list)
    label_kind: LabelKind = "class"


class OutcomeRows(Protocol):
    """The rows of all inputs (INPUTS_SCHEMA), sorted by URI."""

    def __len__(self) -> int:
        """Return the number of inputs."""

    def uris(self) -> Iterable[pa.Array]:
        """Return the URIs of all inputs in chunks: string, sorted."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, PLAN_ROWS at a time."""

    def table(self, start: int = 0, length: int | None = None) -> pa.Table:
        """Return the rows [start, start + length), or all from ``start`` on."""


class RecordRows(Protocol):
    """The records to be written (PLAN_SCHEMA and columns of features), in stored order."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the records."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all records, PLAN_ROWS at a time."""

    def table(self, start: int = 0, length: int | None = None) -> pa.Table:
        """Return the records [start, start + length), or all from ``start`` on."""

    def sample(self, count: int, seed: int) -> pa.Table:
        """Return so many records, chosen by a hash of their ids, in stored order."""


Inputs = TypeVar("Inputs", bound=OutcomeRows, covariant=True)
Records = TypeVar("Records", bound=RecordRows, covariant=True)


@dataclass(frozen=True)
class PlannedVersion(Generic[Inputs, Records]):
    """Plan of a version, with its rows in memory or on storage.

    Attributes:
        input_rows: the outcome of each input.
        planned: the records to be written, shard after shard, in stored order.
        shards: the shards to be written, train first.
        summary: the part of the plan that the manifest says.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None if they were not looked for.
        inherited: numbers of the previous version's shards that stay as they are, rising.
        num_without_vector: records that lack a vector, if vectors were given.
    """

    input_rows: Inputs
    planned: Records
    shards: list[PlannedShard]
    summary: PlanSummary
    near_duplicates: pa.Table | None = None
    inherited: list[int] = field(default_factory=list)
    num_without_vector: int = 0

    @property
    def classes(self) -> list[str]:
        """Names by label."""
        return self.summary.classes

    @property
    def features(self) -> list[Feature]:
        """The further features of the records."""
        return self.summary.features

    def records_of(self, shard: PlannedShard) -> pa.Table:
        """Return the records of one shard in stored order: PLAN_SCHEMA and columns of features."""
        return self.planned.table(shard.start, shard.length)


AnyPlan = PlannedVersion[OutcomeRows, RecordRows]
