"""Groups by key (a patient, a video) that are in several splits, and groups of near-duplicates.

Arrow counts the tables; only the groups that are shown become Python values: of near-duplicates
(NEAR_DUPLICATES_SCHEMA) first those in several splits or under several labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.version import read_parquet
from shardmill.infra.format.contract import NEAR_DUPLICATES_SCHEMA, Manifest
from shardmill.infra.storage.filesystem import Storage

KEYS_SHOWN = 12
RECORDS_PER_SPLIT = 2
_NO_SIZES = pa.schema(
    [("group", pa.string()), ("count_all", pa.int64()), ("split", pa.string())]
).empty_table()


@dataclass(frozen=True, slots=True)
class DividedKey:
    """A group that is in several splits.

    Attributes:
        key: name of the group.
        counts: split -> number of records.
        record_ids: split -> ids of the first records.
    """

    key: str
    counts: dict[str, int]
    record_ids: dict[str, tuple[str, ...]]


def divided_keys(storage: Storage, manifest: Manifest) -> list[DividedKey]:
    """Find the largest groups that are in several splits; reads nothing if the manifest counts none."""
    if not manifest.leaks.key_groups:
        return []
    sizes = pa.concat_tables([_NO_SIZES, *_sizes_by_split(storage, manifest)])
    totals = sizes.group_by("group").aggregate([("split", "count_distinct"), ("count_all", "sum")])
    divided = totals.filter(pc.greater(totals["split_count_distinct"], 1))
    order = [("count_all_sum", "descending"), ("group", "ascending")]
    shown = divided.sort_by(order).slice(0, KEYS_SHOWN)["group"].to_pylist()
    counts: dict[str, dict[str, int]] = {key: dict.fromkeys(manifest.splits, 0) for key in shown}
    for row in sizes.filter(pc.is_in(sizes["group"], pa.array(shown, pa.string()))).to_pylist():
        counts[row["group"]][row["split"]] = row["count_all"]
    ids = _first_ids(storage, manifest, shown)
    return [
        DividedKey(
            key,
            {split: count for split, count in counts[key].items() if count},
            {split: tuple(ids.get((key, split), ())) for split in counts[key]},
        )
        for key in shown
    ]


def _sizes_by_split(storage: Storage, manifest: Manifest) -> Iterator[pa.Table]:
    """Yield one table per split, with the columns group, count_all and split and one row per group."""
    for split in manifest.splits:
        groups = []
        for shard in manifest.shards:
            if shard.split == split:
                with storage.open_input(shard.index_path) as stream:
                    groups.append(read_parquet(stream, columns=["group"]))
        table = pa.concat_tables(groups)
        sizes = table.filter(pc.is_valid(table["group"])).group_by("group").aggregate([([], "count_all")])
        yield sizes.append_column("split", pa.array([split] * sizes.num_rows, pa.string()))


def _first_ids(storage: Storage, manifest: Manifest, keys: list[str]) -> dict[tuple[str, str], list[str]]:
    """Return (key, split) -> the smallest record ids."""
    wanted = pa.array(keys, pa.string())
    found: dict[tuple[str, str], list[str]] = {}
    for shard in manifest.shards:
        with storage.open_input(shard.index_path) as stream:
            table = read_parquet(stream, columns=["group", "id"])
        rows = table.filter(pc.is_in(table["group"], wanted)).sort_by("id")
        for row in rows.to_pylist():
            kept = found.setdefault((row["group"], shard.split), [])
            kept.append(row["id"])
            kept.sort()
            del kept[RECORDS_PER_SPLIT:]
    return found


GROUPS_SHOWN = 24
LEAKS_SHOWN = 16
MEMBERS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Member:
    """One record of a group. ``split`` is None if the record was dropped as a leak."""

    record_id: str
    uri: str
    label: str
    split: str | None
    distance: int | None  # thousandths by which the nearest other member differs


@dataclass(frozen=True, slots=True)
class NearGroup:
    """Records that look the same. ``members`` are the first ones by id of a large group."""

    members: tuple[Member, ...]
    num_members: int
    num_labels: int
    is_leak: bool  # members are in several splits, or were dropped because they would have been

    @property
    def is_conflict(self) -> bool:
        """Tell whether its members have several labels."""
        return self.num_labels > 1

    @property
    def common_label(self) -> str | None:
        """The label of all members, or None if they differ."""
        return None if self.is_conflict else self.members[0].label

    @property
    def common_split(self) -> str | None:
        """The split of all members, or None if they differ."""
        return None if self.is_leak else self.members[0].split


@dataclass(frozen=True, slots=True)
class NearDuplicateGroups:
    """The number of groups, and the groups that are shown.

    Attributes:
        num_groups: all groups.
        num_members: records in them.
        num_conflicts: groups under several labels.
        num_leaks: groups in several splits, with those that dropping records from train has mended.
        groups: shown groups that are in one split.
        leaks: shown groups of ``num_leaks``.
    """

    num_groups: int = 0
    num_members: int = 0
    num_conflicts: int = 0
    num_leaks: int = 0
    groups: tuple[NearGroup, ...] = ()
    leaks: tuple[NearGroup, ...] = ()

    def members(self) -> Iterable[Member]:
        """Return every member that is shown."""
        return (member for group in (*self.groups, *self.leaks) for member in group.members)


def near_duplicates(storage: Storage, manifest: Manifest) -> NearDuplicateGroups:
    """Read the groups of a version; none if they were not looked for."""
    if manifest.near_duplicates is None:
        return NearDuplicateGroups()
    with storage.open_input(manifest.near_duplicates.path) as stream:
        return choose_groups(read_parquet(stream, columns=_COLUMNS))


_COLUMNS = [name for name in NEAR_DUPLICATES_SCHEMA.names if name != "perceptual_hash"]


def choose_groups(table: pa.Table) -> NearDuplicateGroups:
    """Count groups, and choose which to show: conflicts before others, then the largest.

    Args:
        table: ``NEAR_DUPLICATES_SCHEMA``.
    """
    if not table.num_rows:
        return NearDuplicateGroups()
    distinct = pc.CountOptions(mode="only_valid")
    sizes = table.group_by("group").aggregate(
        [
            ([], "count_all"),
            ("label", "count_distinct", distinct),
            ("split", "count_distinct", distinct),
            ("split", "count", pc.CountOptions(mode="only_null")),
        ]
    )
    is_leak = pc.or_(
        pc.greater(sizes["split_count_distinct"], 1),
        pc.and_(pc.greater(sizes["split_count"], 0), pc.greater(sizes["split_count_distinct"], 0)),
    )
    is_conflict = pc.greater(sizes["label_count_distinct"], 1)
    sizes = sizes.append_column("is_leak", is_leak).append_column(
        "is_conflict", pc.cast(is_conflict, pa.int8())
    )
    leaks = _first(sizes.filter(sizes["is_leak"]), LEAKS_SHOWN)
    groups = _first(sizes.filter(pc.invert(sizes["is_leak"])), GROUPS_SHOWN)
    members = _members(table, [row["group"] for row in (*leaks, *groups)])
    return NearDuplicateGroups(
        num_groups=sizes.num_rows,
        num_members=table.num_rows,
        num_conflicts=pc.sum(sizes["is_conflict"]).as_py(),
        num_leaks=pc.sum(pc.cast(is_leak, pa.int64())).as_py(),
        groups=tuple(_group(row, members[row["group"]]) for row in groups),
        leaks=tuple(_group(row, members[row["group"]]) for row in leaks),
    )


def _first(sizes: pa.Table, count: int) -> list[dict[str, Any]]:
    order = [("is_conflict", "descending"), ("count_all", "descending"), ("group", "ascending")]
    rows: list[dict[str, Any]] = sizes.sort_by(order).slice(0, count).to_pylist()
    return rows


def _members(table: pa.Table, groups: list[str]) -> dict[str, list[Member]]:
    """Choose the members to show: first one of each label and split, then by id."""
    found: dict[str, list[Member]] = {}
    rows = table.filter(pc.is_in(table["group"], pa.array(groups, pa.string())))
    for batch in rows.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            member = Member(row["record_id"], row["uri"], row["label"], row["split"], row["distance"])
            kept = found.setdefault(row["group"], [])
            kept.append(member)
            if len(kept) > 4 * MEMBERS_SHOWN:
                kept[:] = _most_telling(kept)
    return {group: _most_telling(kept) for group, kept in found.items()}


def _most_telling(members: list[Member]) -> list[Member]:
    members = sorted(members, key=lambda member: member.record_id)
    first_of: dict[tuple[str, str | None], Member] = {}
    for member in members:
        first_of.setdefault((member.label, member.split), member)
    telling = list(first_of.values())
    chosen = (telling + [member for member in members if member not in telling])[:MEMBERS_SHOWN]
    return sorted(chosen, key=lambda member: member.record_id)


def _group(row: dict[str, Any], members: list[Member]) -> NearGroup:
    return NearGroup(tuple(members), row["count_all"], row["label_count_distinct"], row["is_leak"])
