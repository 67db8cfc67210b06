"""What the later stages need of a plan, whether it is in memory (``steps``) or on storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from beam_jobs.plan.shards import PlannedShard
from beam_jobs.plan.summary import PlanSummary
from infra.format.features import Feature


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

    def sample(self, count: int, seed: int) -> pa.Table:
        """Return so many records, chosen by a hash of their ids, in stored order."""


class AnyPlan(Protocol):
    """The plan of a version; see ``steps.Plan`` for its attributes."""

    @property
    def input_rows(self) -> OutcomeRows:
        """What became of each input."""

    @property
    def planned(self) -> RecordRows:
        """The records to be written."""

    @property
    def shards(self) -> list[PlannedShard]:
        """The shards to be written, train first."""

    @property
    def summary(self) -> PlanSummary:
        """What the manifest says."""

    @property
    def near_duplicates(self) -> pa.Table | None:
        """NEAR_DUPLICATES_SCHEMA; None if they were not looked for."""

    @property
    def inherited(self) -> list[int]:
        """Numbers of the previous version's shards that stay as they are, rising."""

    @property
    def num_without_vector(self) -> int:
        """Number of records that lack a vector, if vectors were given."""

    @property
    def classes(self) -> list[str]:
        """Names by label."""

    @property
    def features(self) -> list[Feature]:
        """The further features of the records."""

    def records_of(self, shard: PlannedShard) -> pa.Table:
        """Return the records of one shard in stored order: PLAN_SCHEMA and columns of features."""
