"""The planned records (PLAN_SCHEMA), in the order in which they are stored.

Rows are made when they are asked for, a range at a time, usually a shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.plan.columns import PLAN_ROWS, SAMPLE, Rows, hash_ranks
from shardmill.beam_jobs.schemas import IMAGE_NAMES, LISTING_SCHEMA, PLACED_FACTS_SCHEMA, PLAN_SCHEMA
from shardmill.beam_jobs.tables.features import feature_columns, features_of, with_features
from shardmill.beam_jobs.tables.ids import UInt64, digest_bytes, hex_text, record_ids
from shardmill.infra.format.features import Feature

_FACTS_OF_RECORDS = ("block", "shard", "offset_bytes", *IMAGE_NAMES)


@dataclass(frozen=True)
class PlannedRecords:
    """Records in stored order.

    Attributes:
        listing: LISTING_SCHEMA and columns of features.
        facts: PLACED_FACTS_SCHEMA.
        rows: int32 [P], row of each record in the listing.
        places: int32 [P], row of each record in the facts.
        labels: int32 [P], number of the class.
    """

    listing: pa.Table
    facts: pa.Table
    rows: Rows
    places: Rows
    labels: npt.NDArray[np.int32]

    @classmethod
    def none(cls) -> Self:
        """Return an empty plan."""
        rows = np.empty(0, np.int32)
        return cls(LISTING_SCHEMA.empty_table(), PLACED_FACTS_SCHEMA.empty_table(), rows, rows, rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def features(self) -> list[Feature]:
        """The further features of the records."""
        return features_of(self.listing)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the records: PLAN_SCHEMA and columns of features."""
        return with_features(PLAN_SCHEMA, self.features)

    def ids(self) -> UInt64:
        """Return the record ids: uint64 [P]."""
        return record_ids(digest_bytes(self.facts["sha256"]))[self.places]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all records (``schema``), PLAN_ROWS at a time."""
        for start in range(0, len(self), PLAN_ROWS):
            yield from self.table(start, PLAN_ROWS).combine_chunks().to_batches()

    def table(self, start: int = 0, length: int | None = None) -> pa.Table:
        """Return the records [start, start + length), or all from ``start`` on: ``schema``."""
        part = slice(start, None if length is None else start + length)
        return self._table(self.rows[part], self.places[part], self.labels[part])

    def take(self, positions: npt.NDArray[np.int64]) -> pa.Table:
        """Return the records at some positions: ``schema``."""
        return self._table(self.rows[positions], self.places[positions], self.labels[positions])

    def sample(self, count: int, seed: int) -> pa.Table:
        """Return so many records, chosen by a hash of their ids, in stored order: ``schema``."""
        ranks = hash_ranks(self.ids(), seed, SAMPLE)
        count = min(count, len(ranks))
        chosen = np.argpartition(ranks, count - 1)[:count] if count else np.empty(0, np.int64)
        return self.take(np.sort(chosen))

    def _table(self, rows: Rows, places: Rows, labels: npt.NDArray[np.int32]) -> pa.Table:
        extra = feature_columns(self.features)
        sources = self.listing.select(["uri", "size_bytes", "group", *extra]).take(pa.array(rows))
        facts = self.facts.select(["sha256", *_FACTS_OF_RECORDS]).take(pa.array(places))
        columns = {
            "id": hex_text(digest_bytes(facts["sha256"])[:, :8]),
            "sha256": facts["sha256"],
            "label": pa.array(labels),
            "source_uri": sources["uri"],
            "source_bytes": sources["size_bytes"],
            "group": sources["group"],
        }
        columns |= {name: facts[name] for name in _FACTS_OF_RECORDS}
        columns |= {name: sources[name] for name in extra}
        schema = self.schema
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)
