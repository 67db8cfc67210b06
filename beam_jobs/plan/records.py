"""The planned records: what is known of each, in the order in which it is stored.

Rows are made when they are asked for, a range (as a rule a shard) at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.blocks import FACTS_SCHEMA
from beam_jobs.plan.columns import PLAN_ROWS, Rows
from beam_jobs.plan.hashing import UInt64, digest_bytes, hex_text, record_ids
from beam_jobs.sources.listing import LISTING_SCHEMA
from infra.contract import IMAGE_COLUMNS

_STORED_FACTS = ("offset_bytes", *(field.name for field in IMAGE_COLUMNS))

# Of each shard in stored order.
PLAN_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("sha256", pa.binary(32)),
        ("label", pa.int32()),
        ("source_uri", pa.string()),
        ("source_bytes", pa.int64()),
        ("group", pa.string()),
        ("block", pa.int32()),  # number of the block whose spool file holds the stored form
        *((name, FACTS_SCHEMA.field(name).type) for name in _STORED_FACTS),
    ]
)


@dataclass(frozen=True)
class PlannedRecords:
    """Records in stored order.

    Attributes:
        listing: LISTING_SCHEMA.
        facts: FACTS_SCHEMA.
        rows: int32 [P], row of the listing of each record.
        places: int32 [P], row of the facts of each.
        labels: int32 [P].
        blocks: int32 [rows of facts], number of the block that holds each.
    """

    listing: pa.Table
    facts: pa.Table
    rows: Rows
    places: Rows
    labels: npt.NDArray[np.int32]
    blocks: npt.NDArray[np.int32]

    @classmethod
    def none(cls) -> Self:
        """No record."""
        rows = np.empty(0, np.int32)
        return cls(LISTING_SCHEMA.empty_table(), FACTS_SCHEMA.empty_table(), rows, rows, rows, rows)

    def __len__(self) -> int:
        return len(self.rows)

    def ids(self) -> UInt64:
        """Record ids: uint64 [P]."""
        return record_ids(digest_bytes(self.facts["sha256"]))[self.places]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """PLAN_SCHEMA: all records, PLAN_ROWS at a time."""
        for start in range(0, len(self), PLAN_ROWS):
            yield from self.table(start, PLAN_ROWS).combine_chunks().to_batches()

    def table(self, start: int = 0, length: int | None = None) -> pa.Table:
        """PLAN_SCHEMA: the records [start, start + length), or all from there on."""
        part = slice(start, None if length is None else start + length)
        return self._table(self.rows[part], self.places[part], self.labels[part])

    def take(self, positions: npt.NDArray[np.int64]) -> pa.Table:
        """PLAN_SCHEMA: some records."""
        return self._table(self.rows[positions], self.places[positions], self.labels[positions])

    def _table(
        self,
        rows: Rows,
        places: Rows,
        labels: npt.NDArray[np.int32],
    ) -> pa.Table:
        sources = self.listing.select(["uri", "size_bytes", "group"]).take(pa.array(rows))
        facts = self.facts.select(["sha256", *_STORED_FACTS]).take(pa.array(places))
        columns = {
            "id": hex_text(digest_bytes(facts["sha256"])[:, :8]),
            "sha256": facts["sha256"],
            "label": pa.array(labels),
            "source_uri": sources["uri"],
            "source_bytes": sources["size_bytes"],
            "group": sources["group"],
            "block": pa.array(self.blocks[places]),
        }
        return pa.table(columns | {name: facts[name] for name in _STORED_FACTS}).cast(PLAN_SCHEMA)
