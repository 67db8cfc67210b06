"""Tasks that deal records to shards, and write the records of each shard in stored order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.plan.columns import PLACE, SAMPLE, SHARD, hash_ranks
from shardmill.beam_jobs.plan_by_ranges.files import PLACES, PLANNED, SHARD_COLUMN, TO_SHARDS, RangeCounts
from shardmill.beam_jobs.plan_by_ranges.hashes import TO_DEAL
from shardmill.beam_jobs.plan_by_ranges.tables import Int64, PlanTables, RangeTask, RowsOnStorage
from shardmill.beam_jobs.tables.ids import digest_bytes, record_ids
from shardmill.infra.format.contract import SPLITS

WRITTEN, WANTED = "written", "wanted"


@dataclass(frozen=True)
class DealRecords(RangeTask):
    """Counts the turns of the records of each range, and sends each record to the range of its file.

    Attributes:
        seed: seed of the plan.
        num_classes: number of classes, at least 1.
        inherited: int64, numbers of the previous version's shards that stay as they are, rising.
        row_starts: int64 [ranges], first row of the listing in each range of files.
    """

    name: ClassVar[str] = "DealRecords"
    output: ClassVar[str] = PLACES
    received: ClassVar[tuple[str, ...]] = (TO_DEAL,)
    seed: int
    num_classes: int
    inherited: Int64
    row_starts: Int64

    def do(self, number: int) -> None:
        """Deal the records of a range."""
        received = self.tables.receive(TO_DEAL, number)
        stays = np.isin(received["home"].to_numpy(), self.inherited)
        rows = received.take(pa.array(np.flatnonzero(~stays)))
        ids, splits = rows["id"].to_numpy(), rows["split"].to_numpy()
        strata = rows["label"].to_numpy()
        order = np.lexsort((hash_ranks(ids, self.seed, SHARD), strata, splits))
        cells = splits[order].astype(np.int64) * self.num_classes + strata[order]
        turns = np.empty(len(order), np.int64)
        turns[order] = np.arange(len(order)) - np.searchsorted(cells, cells)
        written = np.bincount(cells, minlength=len(SPLITS) * self.num_classes)
        lengths = np.zeros(len(SPLITS), np.int64)
        np.add.at(lengths, splits, rows["stored_bytes"].to_numpy())
        wanted = np.bincount(received["split"].to_numpy(), minlength=len(SPLITS))
        self.tables.write(WRITTEN, number, pa.table({"count": written}))
        self.tables.write(WANTED, number, pa.table({"count": wanted, "stored_bytes": lengths}))
        placed = rows.select(["row", "split", "label"]).append_column("stratum", rows["label"])
        placed = placed.append_column("turn", pa.array(turns))
        targets = np.searchsorted(self.row_starts, rows["row"].to_numpy(), side="right") - 1
        self.tables.send(PLACES, number, placed, targets)


def read_counts(tables: PlanTables, number: int) -> RangeCounts:
    """Read the counts of a range that was dealt."""
    totals = tables.read(WANTED, number)
    written = tables.read(WRITTEN, number)["count"].to_numpy().reshape(len(SPLITS), -1)
    return RangeCounts(written, totals["count"].to_numpy(), totals["stored_bytes"].to_numpy())


@dataclass(frozen=True)
class OrderShards(RangeTask):
    """Writes the records of each range of shards in stored order.

    Attributes:
        seed: seed of the plan.
    """

    name: ClassVar[str] = "OrderShards"
    output: ClassVar[str] = PLANNED
    received: ClassVar[tuple[str, ...]] = (TO_SHARDS,)
    seed: int

    def do(self, number: int) -> None:
        """Order the records of a range of shards."""
        records = self.tables.receive(TO_SHARDS, number).drop_columns(["source"])
        ranks = hash_ranks(record_ids(digest_bytes(records["sha256"])), self.seed, PLACE)
        order = np.lexsort((ranks, records[SHARD_COLUMN].to_numpy()))
        self.tables.write(PLANNED, number, records.drop_columns([SHARD_COLUMN]).take(pa.array(order)))


@dataclass(frozen=True)
class PlannedOnStorage(RowsOnStorage):
    """The records to be written, in stored order: PLAN_SCHEMA and columns of features."""

    def sample(self, count: int, seed: int) -> pa.Table:
        """Return so many records, chosen by a hash of their ids, in stored order."""
        chosen = self.schema.empty_table()
        ranks = np.empty(0, np.uint64)
        for number in range(self.tables.ranges):
            records = self.tables.read(self.name, number)
            found = hash_ranks(record_ids(digest_bytes(records["sha256"])), seed, SAMPLE)
            least = np.sort(np.argsort(found)[:count])
            chosen = pa.concat_tables([chosen, records.take(pa.array(least))])
            ranks = np.concatenate([ranks, found[least]])
            kept = np.sort(np.argsort(ranks)[:count])
            chosen, ranks = chosen.take(pa.array(kept)), ranks[kept]
        return chosen
