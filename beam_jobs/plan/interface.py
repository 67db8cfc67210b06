"""The plan of a version as the later stages see it, whether its rows are in memory or on storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from shardmill.beam_jobs.plan.shards import PlannedShard
from shardmill.beam_jobs.plan.summary import PlanSummary
from shardmill.infra.format.features import Feature


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
