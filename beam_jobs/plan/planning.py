"""A plan, step by step.

1. *Duplicates.* Files with equal SHA-256 become one record; the smallest URI is kept.
2. *Groups* of records by key and by looks (beam_jobs.plan.groups, near_duplicates).
3. *Splits*: given, then earlier, then group, then stratified (beam_jobs.plan.splits).
4. *Leaks*: groups that are divided all the same (beam_jobs.plan.leaks).
5. *Shards* and the order in them (beam_jobs.plan.shards).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.config import PrepareConfig
from beam_jobs.plan.columns import Rows, is_null, one_chunk, rows_where, split_codes
from beam_jobs.plan.duplicates import Duplicates, Files, find_duplicates, find_label_conflicts
from beam_jobs.plan.earlier import Earlier
from beam_jobs.plan.groups import Groups, key_groups, units_of
from beam_jobs.plan.hashing import SPLIT, UInt64, digest_bytes, hash_ranks
from beam_jobs.plan.inputs import FACTS_OF_INPUTS, InputRows
from beam_jobs.plan.leaks import Dropped, GroupedRecords, settle_leaks
from beam_jobs.plan.near_duplicates import (
    NearDuplicates,
    find_near_duplicates,
    near_duplicates_table,
)
from beam_jobs.plan.placing import Labels
from beam_jobs.plan.records import PlannedRecords
from beam_jobs.plan.shards import Dealt, PlannedShard, deal
from beam_jobs.plan.splits import Codes, assign_splits
from beam_jobs.plan.statistics import split_statistics
from beam_jobs.texts import code_texts
from infra.contract import LabelConflict, Leaks, SplitStatistics


@dataclass(frozen=True)
class Plan:
    """What a version will be.

    Attributes:
        input_rows: what became of each input.
        planned: the records to be written, shard after shard, each in stored order.
        shards: those to be written, train first.
        classes: names by label: those of the earlier version, then new ones that have a record, sorted.
        label_conflicts: the same bytes under several labels.
        cross_split_duplicates: duplicates that the source gives another split than the record kept.
        statistics: split -> what its images are like, inherited ones among them.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None where they were not looked for.
        leaks: groups that are divided among splits.
        inherited: numbers of the earlier version's shards that stay as they are, rising.
    """

    input_rows: InputRows
    planned: PlannedRecords
    shards: list[PlannedShard]
    classes: list[str]
    label_conflicts: list[LabelConflict]
    cross_split_duplicates: int
    statistics: dict[str, SplitStatistics]
    near_duplicates: pa.Table | None = None
    leaks: Leaks = field(default_factory=Leaks)
    inherited: list[int] = field(default_factory=list)

    @property
    def inputs(self) -> pa.Table:
        """INPUTS_SCHEMA, a row a file, sorted by URI. Made anew at each call; see ``input_rows``."""
        return self.input_rows.table()

    def records_of(self, shard: PlannedShard) -> pa.Table:
        """PLAN_SCHEMA, the records of one shard in stored order."""
        return self.planned.table(shard.start, shard.length)

    def without_records(self) -> Plan:
        """The same, without what only the records to be written are made of."""
        return replace(self, planned=PlannedRecords.none())

    @property
    def records(self) -> pa.Table:
        """PLAN_SCHEMA, the records to be written. Made anew at each call; see ``planned``."""
        return self.planned.table()


@dataclass(frozen=True)
class _Known:
    """What is known of all files, and which of them become records.

    Attributes:
        listing, facts: in one chunk.
        read: int32, rows of the listing that were read.
        files: those that have a stored form.
        labels: of the whole listing.
        given: int8 [rows of the listing], the split that the source gives, or -1.
        found: duplicates among ``files``.
        ids: uint64 [K], of the records.
    """

    listing: pa.Table
    facts: pa.Table
    read: Rows
    files: Files
    labels: pa.DictionaryArray
    given: Codes
    found: Duplicates
    ids: UInt64

    @classmethod
    def of(cls, listing: pa.Table, facts: pa.Table) -> _Known:
        """Gather it."""
        listing, facts = listing.combine_chunks(), facts.combine_chunks()  # taking from many is slow
        read = rows_where(is_null(listing["outcome"]))
        if len(read) != facts.num_rows:
            raise ValueError(f"{facts.num_rows} rows of facts for {len(read)} files that were read")
        places = rows_where(is_null(facts["outcome"]))
        files = Files(read[places], places, digest_bytes(facts["sha256"]), listing["uri"])
        labels = one_chunk(code_texts(listing, ("label",))["label"])
        found = find_duplicates(files)
        given = split_codes(listing["split"])
        return cls(listing, facts, read, files, labels, given, found, files.ids()[found.kept])

    @property
    def rows(self) -> Rows:
        """Row of the listing of each record: int32 [K]."""
        return self.files.rows[self.found.kept]

    @property
    def places(self) -> Rows:
        """Row of the facts of each record: int32 [K]."""
        return self.files.places[self.found.kept]

    def crossing(self) -> npt.NDArray[np.bool_]:
        """Which repeats the source gives another split than the record that they repeat: bool [R]."""
        repeats = self.given[self.files.rows[self.found.repeats]]
        records = self.given[self.rows[self.found.record_of_repeat]]
        # Only where the source gives both splits can a duplicate cross them.
        crossing: npt.NDArray[np.bool_] = (repeats >= 0) & (records >= 0) & (records != repeats)
        return crossing


def plan_version(
    listing: pa.Table,
    facts: pa.Table,
    blocks: npt.NDArray[np.int32],
    config: PrepareConfig,
    earlier: Earlier | None = None,
) -> Plan:
    """Plan a version.

    Args:
        listing: LISTING_SCHEMA, sorted by URI; its labels may be dictionary-coded (beam_jobs.texts).
        facts: FACTS_SCHEMA, a row for each row of the listing whose outcome is null, in order; what is text
            in IMAGE_COLUMNS may be coded too.
        blocks: int32 [rows of facts], the number of the block that holds each.
        config: groups, splits, shards and seed.
        earlier: the version before this one, whose records keep their split and classes their number.

    Raises:
        DataError: two files with different content share a record id.
        LeakError: splits divide a group, and none may be divided.
    """
    if len(blocks) != facts.num_rows:
        raise ValueError(f"{facts.num_rows} rows of facts, but {len(blocks)} numbers of blocks")
    known = _Known.of(listing, facts)
    grouped, near = _split(known, config, earlier)
    leaks, dropped = settle_leaks(grouped, config.groups.leakage)
    stays = _without(len(known.ids), dropped.records)
    rows, places = known.rows[stays], known.places[stays]
    classes, labels = _class_codes(known.labels, rows, earlier)
    splits = grouped.splits[stays]
    dealt = _deal(known, rows, places, known.ids[stays], labels, splits, config, earlier)
    order = dealt.order
    input_rows = InputRows(
        known.listing,
        known.facts.select(FACTS_OF_INPUTS),
        known.read,
        known.files,
        known.found,
        known.crossing(),
        grouped.splits,
        dropped,
    )
    return Plan(
        input_rows=input_rows,
        planned=PlannedRecords(known.listing, known.facts, rows[order], places[order], labels[order], blocks),
        shards=dealt.shards,
        classes=classes,
        label_conflicts=find_label_conflicts(known.files, known.labels, known.found),
        cross_split_duplicates=input_rows.num_crossing,
        statistics=split_statistics(known.facts, places, splits),
        near_duplicates=_near_table(known, near, grouped, dropped),
        leaks=leaks,
        inherited=dealt.inherited,
    )


def _without(count: int, dropped: npt.NDArray[np.int64]) -> slice | npt.NDArray[np.bool_]:
    """What selects all of so many but the dropped ones; copies nothing where all stay."""
    if not len(dropped):
        return slice(None)
    stays = np.ones(count, np.bool_)
    stays[dropped] = False
    return stays


def _split(
    known: _Known, config: PrepareConfig, earlier: Earlier | None
) -> tuple[GroupedRecords, NearDuplicates | None]:
    """Group all records and give each a split."""
    keyed, keys = key_groups(known.listing["group"].take(pa.array(known.files.rows)), known.found.record_of())
    near = None
    if config.groups.near_duplicates:
        hashes = known.facts["perceptual_hash"].take(pa.array(known.places))
        near = find_near_duplicates(hashes, config.groups.max_distance)
    near_groups = near.groups if near else Groups.none()
    _, labels = _class_codes(known.labels, known.rows, earlier)
    splits = assign_splits(
        known.given[known.rows],
        labels,
        hash_ranks(known.ids, config.seed, SPLIT),
        config.splits.fractions(),
        earlier.split_of(known.ids) if earlier is not None else None,
        units_of(len(known.ids), [keyed, near_groups]),
    )
    return GroupedRecords(near_groups, keyed, keys, splits, known.listing["uri"], known.rows), near


def _deal(
    known: _Known,
    rows: Rows,
    places: Rows,
    ids: UInt64,
    labels: Labels,
    splits: Codes,
    config: PrepareConfig,
    earlier: Earlier | None,
) -> Dealt:
    """Deal the records that stay to shards."""
    stored_bytes = known.facts["stored_bytes"].take(pa.array(places)).to_numpy()
    held = earlier.held if earlier is not None else None
    homes = None
    if held is not None:
        wanted = known.listing.select(["uri", "group"]).take(pa.array(rows))
        homes = held.homes(ids, labels, splits, wanted["uri"], wanted["group"])
    return deal(ids, labels, splits, stored_bytes, config, held, homes)


def _near_table(
    known: _Known, near: NearDuplicates | None, grouped: GroupedRecords, dropped: Dropped
) -> pa.Table | None:
    if near is None:
        return None
    splits = grouped.splits.copy()
    splits[dropped.records] = -1
    return near_duplicates_table(
        near, known.facts["perceptual_hash"], known.listing, known.rows, known.places, known.ids, splits
    )


def _class_codes(labels: pa.DictionaryArray, rows: Rows, earlier: Earlier | None) -> tuple[list[str], Labels]:
    """(names by number, number of the class of each record: int32 [N]).

    Args:
        labels: of the whole listing.
        rows: int32 [N], of the records.
    """
    known = list(earlier.classes) if earlier is not None else []
    of_records = labels.indices.take(pa.array(rows)).to_numpy()
    names = labels.dictionary.to_pylist()
    found = {str(names[code]) for code in np.unique(of_records)}
    classes = known + sorted(found - set(known))
    number = {name: at for at, name in enumerate(classes)}
    codes = np.array([number.get(name, -1) for name in names], np.int32)
    return classes, codes[of_records] if len(rows) else np.empty(0, np.int32)
