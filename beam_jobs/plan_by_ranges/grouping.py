"""Groups by ranges of keys, and the records that are in any group, which are in one process.

These are the records whose units, splits and leaks depend on each other. There may be few of them or many:
each takes about 150 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.plan.columns import Codes
from shardmill.beam_jobs.plan.pseudo_random_order import SPLIT, hash_ranks
from shardmill.beam_jobs.plan.similarity.groups import Groups, units_of
from shardmill.beam_jobs.plan.similarity.near_duplicates import NearDuplicates
from shardmill.beam_jobs.plan.splits.assignment import known_splits
from shardmill.beam_jobs.plan.splits.leaks import GroupedRecords
from shardmill.beam_jobs.plan.splits.placement import Units
from shardmill.beam_jobs.plan_by_ranges.tables import Int64, PlanTables, RangeTask, range_of
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.ids import UInt64

GROUPS, TO_KEYS = "groups", "to-keys"

MEMBER_COLUMNS = ("row", "uri", "id", "label", "given", "previous")


@dataclass(frozen=True)
class GroupByKey(RangeTask):
    """Groups the records whose files have a key in common, in each range of keys."""

    name: ClassVar[str] = "GroupByKey"
    output: ClassVar[str] = GROUPS
    received: ClassVar[tuple[str, ...]] = (TO_KEYS,)

    def do(self, number: int) -> None:
        """Write the memberships of a range of keys."""
        files = self.tables.receive(TO_KEYS, number).drop_columns(["source"])
        files = files.take(pa.array(np.argsort(files["file"].to_numpy())))
        coded = one_chunk(files["key"]).dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        groups = Groups.of(files["row"].to_numpy(), codes)
        _, first = np.unique(codes, return_index=True)
        members = files.take(pa.array(groups.order)).drop_columns(["file"])
        opened = files["file"].to_numpy()[first][codes[groups.order]]
        self.tables.write(GROUPS, number, members.append_column("opened_by", pa.array(opened)))


@dataclass(frozen=True)
class GroupedInRanges:
    """The records that are in groups.

    Attributes:
        table: MEMBER_COLUMNS of each and its perceptual hash if it is a near-duplicate, sorted by row.
        keyed: groups by key, of positions in the table.
        keys: string, the key of each group in ``keyed``.
        near: near-duplicates, of positions in the table; None if they were not looked for.
        ranks: uint64 [N], by which splits are divided.
        units: int32 [N], the first record of each record's unit; None if no record is in a group.
    """

    table: pa.Table
    keyed: Groups
    keys: pa.Array
    near: NearDuplicates | None
    ranks: UInt64
    units: Units | None

    @classmethod
    def of(cls, tables: PlanTables, near: NearDuplicates | None, near_members: pa.Table, seed: int) -> Self:
        """Bring the groups of all ranges together.

        Args:
            tables: tables of the plan.
            near: near-duplicates, of positions in ``near_members``.
            near_members: MEMBER_COLUMNS and perceptual_hash, sorted by row.
            seed: seed of the plan.
        """
        members = pa.concat_tables([tables.read(GROUPS, at) for at in range(tables.ranges)])
        order = np.lexsort((members["row"].to_numpy(), members["opened_by"].to_numpy()))
        members = members.take(pa.array(order)).combine_chunks()
        hashless = members.select(MEMBER_COLUMNS).append_column(
            "perceptual_hash", pa.nulls(members.num_rows, pa.uint64())
        )
        both = pa.concat_tables([near_members.select(hashless.column_names), hashless])
        _, first = np.unique(both["row"].to_numpy(), return_index=True)
        table = both.take(pa.array(first)).combine_chunks()
        rows = table["row"].to_numpy()
        _, opens, codes = np.unique(members["opened_by"].to_numpy(), return_index=True, return_inverse=True)
        keyed = Groups.of(np.searchsorted(rows, members["row"].to_numpy()), codes.reshape(-1))
        keys = one_chunk(members["key"]).take(pa.array(opens))
        if near is not None:
            near = _moved(near, np.searchsorted(rows, near_members["row"].to_numpy()))
        ranks = hash_ranks(table["id"].to_numpy(), seed, SPLIT)
        kinds = [keyed, near.groups if near else Groups.none()]
        return cls(table, keyed, keys, near, ranks, units_of(len(rows), kinds))

    def known_splits(self, num_splits: int) -> Codes:
        """Return the splits that need no choice: int8 [N], -1 if a record's is still open."""
        given, previous = (self.table[name].to_numpy() for name in ("given", "previous"))
        return known_splits(given, previous, self.units, num_splits)

    def ranges_of(self, ranges: int) -> Int64:
        """Return the range of hashes that each record is in: int64 [N]."""
        return range_of(self.ranks, ranges)

    def records(self, splits: Codes) -> GroupedRecords:
        """Return the records with their splits, as ``settle_leaks`` takes them."""
        near = self.near.groups if self.near else Groups.none()
        rows = np.arange(len(splits), dtype=np.int32)
        return GroupedRecords(near, self.keyed, self.keys, splits, self.table["uri"], rows)


def _moved(near: NearDuplicates, places: Int64) -> NearDuplicates:
    """Return near-duplicates of other positions, which rise with the old ones."""
    old = near.groups
    groups = Groups(places[old.records], old.groups, old.count, old.labels, old.order)
    return NearDuplicates(groups, near.distance)
