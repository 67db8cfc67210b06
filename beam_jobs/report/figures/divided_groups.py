"""Divided groups: groups by a key (a patient, a video) whose members are in several splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.parquet import read_parquet
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
