"""Tasks over ranges of content hashes: find duplicates, and assign records to splits.

The splits go through the records of a class in the order of this hash. So the ranges continue each other: all
records of a range come after all records of the ranges before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import SHARD, SPLIT, Codes, Rows, hash_ranks, rows_where
from shardmill.beam_jobs.plan.interface import PreviousRecords
from shardmill.beam_jobs.plan.shards import HeldShards, RecordsToDeal
from shardmill.beam_jobs.plan.similarity.groups import (
    Duplicates,
    Files,
    find_duplicates,
    find_label_conflicts,
)
from shardmill.beam_jobs.plan_by_ranges.files import FATES, TO_HASHES
from shardmill.beam_jobs.plan_by_ranges.splitting import TO_KEYS, Seats
from shardmill.beam_jobs.plan_by_ranges.tables import Int64, PlanTables, RangeTask, range_of
from shardmill.beam_jobs.tables.columns import code_texts, one_chunk
from shardmill.beam_jobs.tables.features import feature_columns, features_of
from shardmill.beam_jobs.tables.ids import UInt64, digest_bytes
from shardmill.infra.format.contract import LabelConflict

RECORDS, REPEATS, COUNTS, CONFLICTS = "records", "repeats", "counts", "conflicts"
TO_DEAL, HOMES, GROUPED = "to-deal", "homes", "grouped"
BEFORE, HELD = "before", "held"

_TEXT = pa.string()

# What became of a file that has a stored image.
FATES_SCHEMA = pa.schema(
    [
        ("row", pa.int64()),  # in the listing
        ("split", pa.int8()),  # of its record
        ("original", _TEXT),  # URI of the record that it repeats; null if it is a record
        ("crosses", pa.bool_()),  # the source gives it another split than that record
        ("dropped", _TEXT),  # why its record is dropped from train; null if it is not
    ]
)


@dataclass(frozen=True)
class FindDuplicates(RangeTask):
    """Makes records of the files of each range, and sends those that have a key to the ranges of keys.

    Attributes:
        seed: seed of the plan.
    """

    name: ClassVar[str] = "FindDuplicates"
    output: ClassVar[str] = TO_KEYS
    received: ClassVar[tuple[str, ...]] = (TO_HASHES,)
    seed: int

    def do(self, number: int) -> None:
        """Find the duplicates in a range."""
        rows = self.tables.receive(TO_HASHES, number).drop_columns(["source"])
        every = np.arange(rows.num_rows, dtype=np.int32)
        files = Files(every, every, digest_bytes(rows["sha256"]), rows["uri"])
        found = find_duplicates(files)
        ids = files.ids()
        rows = rows.append_column("id", pa.array(ids)).append_column(
            "previous", pa.array(self._previous(number, ids))
        )
        records = rows.take(pa.array(found.kept)).drop_columns(["sha256"])
        self.tables.write(RECORDS, number, records)
        self.tables.write(REPEATS, number, _repeats(rows, found))
        self.tables.write(COUNTS, number, _counted(records))
        self.tables.write(CONFLICTS, number, _conflicts(files, rows, found))
        keyed = rows_where(np.asarray(pc.is_valid(rows["group"]).to_numpy(), np.bool_))
        members = _members(rows, found, keyed)
        self.tables.send(TO_KEYS, number, members, _hash_texts(members["key"], self.tables.ranges))

    def _previous(self, number: int, ids: UInt64) -> Codes:
        """Return the split of each record in the previous version, or -1."""
        before = self.tables.read(BEFORE, number)
        known = PreviousRecords(before["id"].to_numpy(), before["split"].to_numpy(), ())
        return known.split_of(ids)


def _repeats(rows: pa.Table, found: Duplicates) -> pa.Table:
    """Return the files that repeat a record: row, original (URI), record (its position), crosses."""
    original = found.kept[found.record_of_repeat]
    given = rows["given"].to_numpy()
    ours, theirs = given[found.repeats], given[original]
    return pa.table(
        {
            "row": rows["row"].take(pa.array(found.repeats)),
            "original": rows["uri"].take(pa.array(original)),
            "record": pa.array(found.record_of_repeat),
            "crosses": pa.array((ours >= 0) & (theirs >= 0) & (ours != theirs)),
        }
    )


def _counted(records: pa.Table) -> pa.Table:
    """Count the records of each label and each split that is known."""
    counted = records.select(["label", "given", "previous"]).group_by(["label", "given", "previous"])
    return counted.aggregate([([], "count_all")])


def _conflicts(files: Files, rows: pa.Table, found: Duplicates) -> pa.Table:
    labels = code_texts(rows.select(["label"]), ("label",))["label"].combine_chunks()
    conflicts = find_label_conflicts(files, labels, found)
    return pa.table({"conflict": pa.array([one.model_dump_json() for one in conflicts], _TEXT)})


def read_conflicts(tables: PlanTables) -> list[LabelConflict]:
    """Return the contents that occur under several labels, in the order of the URIs that were kept."""
    found = (tables.read(CONFLICTS, number)["conflict"].to_pylist() for number in range(tables.ranges))
    conflicts = [LabelConflict.model_validate_json(text) for texts in found for text in texts]
    return sorted(conflicts, key=lambda conflict: conflict.uris[0].encode())


def _members(rows: pa.Table, found: Duplicates, keyed: Rows) -> pa.Table:
    """Return the files that have a key, with the record of each."""
    records = rows.select(["row", "uri", "id", "label", "given", "previous"])
    records = records.take(pa.array(found.kept[found.record_of()[keyed]]))
    files = rows.select(["row", "group"]).take(pa.array(keyed))
    return records.append_column("file", files["row"]).append_column("key", files["group"])


def _hash_texts(texts: pa.ChunkedArray, ranges: int) -> Int64:
    """Return a range for each text, the same for equal texts: int64 [N]."""
    coded = one_chunk(texts).dictionary_encode()
    hashes = np.array([crc32(str(text).encode()) % ranges for text in coded.dictionary.to_pylist()], np.int64)
    return np.asarray(hashes[coded.indices.to_numpy()])


@dataclass(frozen=True)
class AssignSplits(RangeTask):
    """Gives every record of a range its split, and sends the records that stay to be dealt to shards.

    Attributes:
        seed: seed of the plan.
        seats: how many records of each class every split still gets.
        sizes: int64 [shards], records in the shards of the previous version that may be inherited, or None.
    """

    name: ClassVar[str] = "AssignSplits"
    output: ClassVar[str] = TO_DEAL
    received: ClassVar[tuple[str, ...]] = (RECORDS,)
    seed: int
    seats: Seats
    sizes: Int64 | None

    def do(self, number: int) -> None:
        """Assign the records of a range."""
        records, grouped = self.tables.read(RECORDS, number), self.tables.read(GROUPED, number)
        ids = records["id"].to_numpy()
        at = np.searchsorted(records["row"].to_numpy(), grouped["row"].to_numpy())
        given = records["given"].to_numpy()
        splits = np.where(given >= 0, given, records["previous"].to_numpy()).astype(np.int8)
        splits[at] = grouped["split"].to_numpy()
        ranks = hash_ranks(ids, self.seed, SPLIT)
        self.seats.fill(number, splits, self.seats.split_codes(records["label"]), ranks)
        messages = grouped["dropped"].combine_chunks()
        places = np.full(records.num_rows, -1, np.int64)
        places[at] = np.arange(len(at))
        dropped = messages.take(pa.array(places, mask=places < 0))
        self._send_fates(number, records, splits, dropped)
        stays = rows_where(np.asarray(pc.is_null(dropped).to_numpy(zero_copy_only=False), np.bool_))
        self._send_to_deal(number, records.take(pa.array(stays)).combine_chunks(), splits[stays])

    def _send_fates(self, number: int, records: pa.Table, splits: Codes, dropped: pa.Array) -> None:
        repeats = self.tables.read(REPEATS, number)
        of_repeat = repeats["record"].to_numpy()
        count, again = records.num_rows, repeats.num_rows
        columns = {
            "row": pa.chunked_array([*records["row"].chunks, *repeats["row"].chunks], pa.int64()),
            "split": np.concatenate([splits, splits[of_repeat]]),
            "original": pa.chunked_array([pa.nulls(count, _TEXT), *repeats["original"].chunks], _TEXT),
            "crosses": np.concatenate([np.zeros(count, np.bool_), repeats["crosses"].to_numpy()]),
            "dropped": pa.chunked_array([dropped, dropped.take(repeats["record"].combine_chunks())], _TEXT),
        }
        fates = pa.table({name: columns[name] for name in FATES_SCHEMA.names}, schema=FATES_SCHEMA)
        assert fates.num_rows == count + again
        targets = self.seats.range_of_rows(fates["row"].to_numpy())
        self.tables.send(FATES, number, fates, targets)

    def _send_to_deal(self, number: int, records: pa.Table, splits: Codes) -> None:
        ids, labels = records["id"].to_numpy(), self.seats.label_codes(records["label"])
        homes = np.full(records.num_rows, -1, np.int32)
        if self.sizes is not None:
            held = _read_held(self.tables, number, self.sizes)
            to_deal = RecordsToDeal(ids, labels, labels, splits, records["stored_bytes"].to_numpy())
            extra = feature_columns(features_of(records))
            homes = held.homes(to_deal, records.select(["uri", "group", *extra]))
            found = np.bincount(homes[homes >= 0], minlength=len(self.sizes))
            self.tables.write(HOMES, number, pa.table({"found": found.astype(np.int64)}))
        table = records.select(["row", "id", "stored_bytes"])
        for name, column in (("split", splits), ("label", labels), ("home", homes)):
            table = table.append_column(name, pa.array(column))
        targets = range_of(hash_ranks(ids, self.seed, SHARD), self.tables.ranges)
        self.tables.send(TO_DEAL, number, table, targets)


def _read_held(tables: PlanTables, number: int, sizes: Int64) -> HeldShards:
    """Return the records of a range that are in shards which may be inherited."""
    held = tables.read(HELD, number)
    said = held.drop_columns(["id", "shard", "label", "split"])
    columns = (held[name].to_numpy() for name in ("id", "shard", "label", "split"))
    ids, shards, labels, splits = columns
    return HeldShards(ids, shards, labels, splits, said, sizes)


def write_previous(tables: PlanTables, previous: PreviousRecords | None, seed: int) -> None:
    """Write ids, splits and shards of the previous version's records, by ranges of their hashes."""
    if previous is None:
        ids, splits, held = np.empty(0, np.uint64), np.empty(0, np.int8), None
    else:
        ids, splits, held = previous.ids, previous.splits, previous.held
    before = pa.table({"id": pa.array(ids), "split": pa.array(splits)})
    targets = range_of(hash_ranks(ids, seed, SPLIT), tables.ranges)
    for number in range(tables.ranges):
        tables.write(BEFORE, number, before.take(pa.array(np.flatnonzero(targets == number))))
    if held is None:
        return
    columns = {"id": held.ids, "shard": held.shards, "label": held.labels, "split": held.splits}
    said = held.said
    for name, column in columns.items():
        said = said.append_column(name, pa.array(column))
    targets = range_of(hash_ranks(held.ids, seed, SPLIT), tables.ranges)
    for number in range(tables.ranges):
        tables.write(HELD, number, said.take(pa.array(np.flatnonzero(targets == number))))
