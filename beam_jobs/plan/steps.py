"""A plan, step by step.

0. *Quality.* Files with a flag of ``filter.quality`` are left out (quality).
1. *Duplicates.* Files with equal SHA-256 become one record; the smallest URI is kept.
2. *Groups* of records by key and by looks (similarity).
3. *Splits*: given, then previous version, then group, then stratified (splits).
4. *Leaks*: groups that are in several splits nevertheless (leaks).
5. *Shards*, and the order of the records in them (shards).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.plan.classes import number_classes
from shardmill.beam_jobs.plan.columns import SPLIT, Codes, Rows, hash_ranks, rows_where, split_codes
from shardmill.beam_jobs.plan.interface import PlannedVersion, PlanSummary, PreviousRecords
from shardmill.beam_jobs.plan.leaks import Dropped, GroupedRecords, settle_leaks
from shardmill.beam_jobs.plan.quality import count_quality, without_flagged
from shardmill.beam_jobs.plan.rows import FACTS_OF_INPUTS, InputRows, PlannedRecords
from shardmill.beam_jobs.plan.shards import Dealt, RecordsToDeal, deal
from shardmill.beam_jobs.plan.similarity.groups import (
    Duplicates,
    Files,
    Groups,
    find_duplicates,
    find_label_conflicts,
    key_groups,
    units_of,
)
from shardmill.beam_jobs.plan.similarity.near_duplicates import NearDuplicates, near_duplicates_table
from shardmill.beam_jobs.plan.similarity.vectors import FoundNear, RecordsToCompare, find_by_looks_and_vectors
from shardmill.beam_jobs.plan.splits import Labels
from shardmill.beam_jobs.plan.splits_by_kind import LabelsToSplit, assign_by_kind, dealing_strata
from shardmill.beam_jobs.plan.statistics import split_statistics
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.tables import release_memory
from shardmill.beam_jobs.tables.columns import code_texts, in_one_chunk, one_chunk
from shardmill.beam_jobs.tables.features import PREFIX, feature_columns, features_of
from shardmill.beam_jobs.tables.ids import UInt64, digest_bytes
from shardmill.beam_jobs.tables.vectors import Vectors
from shardmill.infra.format.known_features import MASK_BYTES, MASK_SHA256, LabelKind
from shardmill.infra.format.quality import QUALITY_COLUMNS, with_counts


@dataclass(frozen=True)
class Plan(PlannedVersion[InputRows, PlannedRecords]):
    """Plan of a version with all rows in memory; see ``PlannedVersion`` for the attributes."""

    @property
    def inputs(self) -> pa.Table:
        """The rows of all inputs: INPUTS_SCHEMA, sorted by URI. Made anew at each call."""
        return self.input_rows.table()

    def without_records(self) -> Plan:
        """Return the plan without its records, which frees most of its memory."""
        return replace(self, planned=PlannedRecords.none())

    @property
    def records(self) -> pa.Table:
        """The records to be written: PLAN_SCHEMA. Made anew at each call; see ``planned``."""
        return self.planned.table()


@dataclass(frozen=True)
class _Known:
    """Facts of all files, and the files that become records.

    Attributes:
        listing: LISTING_SCHEMA, in one chunk; long columns have 64-bit offsets (tables.columns).
        facts: PLACED_FACTS_SCHEMA, in one chunk too.
        read: int32, rows of the listing that were read.
        files: the files that have a stored image.
        labels: label of each file of the listing; of kinds other than class a text for people.
        kind: kind of the labels.
        given: int8 [rows of the listing], the split that the source gives, or -1.
        found: duplicates among ``files``.
        ids: uint64 [K], record ids.
    """

    listing: pa.Table
    facts: pa.Table
    read: Rows
    files: Files
    labels: pa.DictionaryArray
    kind: LabelKind
    given: Codes
    found: Duplicates
    ids: UInt64

    @classmethod
    def of(cls, listing: pa.Table, facts: pa.Table, kind: LabelKind) -> _Known:
        """Join the listing with the facts of the files that were read."""
        listing, facts = in_one_chunk(listing), in_one_chunk(facts)  # taking from many is slow
        read = rows_where(listing["status"].to_numpy() == Status.TO_READ)
        if len(read) != facts.num_rows:
            raise ValueError(f"{facts.num_rows} rows of facts for {len(read)} files that were read")
        places = rows_where(np.isin(facts["status"].to_numpy(), (Status.STORED, Status.STORED_BEFORE)))
        files = Files(read[places], places, digest_bytes(facts["sha256"]), listing["uri"])
        labels = one_chunk(code_texts(listing, ("label",))["label"])
        if kind == "mask":  # other masks contradict each other even if they show the same classes
            labels = pc.binary_join_element_wise(
                labels.cast(pa.string()), one_chunk(listing[PREFIX + MASK_SHA256]), ": mask "
            ).dictionary_encode()
        found = find_duplicates(files)
        given = split_codes(listing["split"])
        return cls(listing, facts, read, files, labels, kind, given, found, files.ids()[found.kept])

    @property
    def rows(self) -> Rows:
        """Row of each record in the listing: int32 [K]."""
        return self.files.rows[self.found.kept]

    @property
    def places(self) -> Rows:
        """Row of each record in the facts: int32 [K]."""
        return self.files.places[self.found.kept]

    def to_compare(self) -> RecordsToCompare:
        """Return what near-duplicates are found by."""
        looks = self.facts["look"]
        if len(self.places) < self.facts.num_rows:  # else they would be copied in vain
            looks = looks.take(pa.array(self.places))
        return RecordsToCompare(looks, self.ids, self.listing["uri"].take(pa.array(self.rows)))

    def crossing(self) -> npt.NDArray[np.bool_]:
        """Return which repeats the source gives another split than their record: bool [R]."""
        repeats = self.given[self.files.rows[self.found.repeats]]
        records = self.given[self.rows[self.found.record_of_repeat]]
        # Only where the source gives both splits can a duplicate cross them.
        crossing: npt.NDArray[np.bool_] = (repeats >= 0) & (records >= 0) & (records != repeats)
        return crossing


def plan_version(
    listing: pa.Table,
    facts: pa.Table,
    config: PrepareConfig,
    previous: PreviousRecords | None = None,
    vectors: Vectors | None = None,
) -> Plan:
    """Plan a version.

    Args:
        listing: LISTING_SCHEMA and columns of features, sorted by URI; its labels may be dictionary-coded
            (shardmill.beam_jobs.tables.columns).
        facts: PLACED_FACTS_SCHEMA, a row for each row of the listing whose status is TO_READ, in order; text
            columns of IMAGE_COLUMNS may be coded too.
        config: groups, splits, shards and seed.
        previous: the previous version, whose records keep their split and classes their number.
        vectors: vectors of the images, by which near-duplicates are found too.

    Raises:
        ConfigError: the vectors are too many, or of other images.
        DataError: two files with different content share a record id.
        LeakError: a group is in several splits, and groups.leakage is "fail".
    """
    limits = count_quality(facts).limits()
    facts = without_flagged(facts, limits, config.filter.quality)
    known = _Known.of(listing, facts, config.source.label_kind)
    if previous is not None:
        previous = previous.of_kind(known.kind)
    near = FoundNear(None)
    if config.groups.near_duplicates or vectors is not None:
        near = find_by_looks_and_vectors(known.to_compare(), config.groups, vectors)
        release_memory()
    grouped = _split(known, config, previous, near.found)
    leaks, dropped = settle_leaks(grouped, config.groups.leakage)
    stays = _without(len(known.ids), dropped.records)
    rows, places = known.rows[stays], known.places[stays]
    classes, labels, numbered = _numbered(known, rows, config, previous)
    known = replace(known, listing=numbered)
    previous = None if previous is None else previous.numbered_as(classes)
    splits = grouped.splits[stays]
    stored_bytes = _stored_bytes(known, rows, places)
    strata = dealing_strata(known.kind, known.listing, rows, labels)
    records = RecordsToDeal(known.ids[stays], labels, strata, splits, stored_bytes)
    dealt = _deal(known, rows, records, config, previous)
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
        planned=PlannedRecords(known.listing, known.facts, rows[order], places[order], labels[order]),
        shards=dealt.shards,
        summary=PlanSummary(
            classes=classes,
            label_conflicts=find_label_conflicts(known.files, known.labels, known.found),
            cross_split_duplicates=input_rows.num_crossing,
            leaks=leaks,
            statistics=split_statistics(known.facts, places, splits, config.image.may_be_float),
            quality=with_counts(limits, [known.facts.select(QUALITY_COLUMNS).take(pa.array(places))]),
            features=features_of(known.listing),
            label_kind=known.kind,
        ),
        near_duplicates=_near_table(known, near.found, grouped, dropped),
        inherited=dealt.inherited,
        num_without_vector=near.num_without_vector,
    )


def _numbered(
    known: _Known, rows: Rows, config: PrepareConfig, previous: PreviousRecords | None
) -> tuple[list[str], Labels, pa.Table]:
    """Number the classes of the records at some rows of the listing; see ``number_classes``."""
    of_masks = list(config.source.masks.classes)
    return number_classes(
        known.kind,
        known.listing,
        known.labels,
        rows,
        previous,
        of_masks,
        drop_empty=config.filter.drop_empty_classes,
    )


def _stored_bytes(known: _Known, rows: Rows, places: Rows) -> npt.NDArray[np.int64]:
    """Return the length of the stored image of each record, and of its mask (bytes)."""
    stored: npt.NDArray[np.int64] = known.facts["stored_bytes"].take(pa.array(places)).to_numpy()
    if known.kind != "mask":
        return stored
    masks: npt.NDArray[np.int64] = known.listing[PREFIX + MASK_BYTES].take(pa.array(rows)).to_numpy()
    return stored + masks


def _without(count: int, dropped: npt.NDArray[np.int64]) -> slice | npt.NDArray[np.bool_]:
    """Return an index that selects all but the dropped records; a slice if all stay, to copy nothing."""
    if not len(dropped):
        return slice(None)
    stays = np.ones(count, np.bool_)
    stays[dropped] = False
    return stays


def _split(
    known: _Known, config: PrepareConfig, previous: PreviousRecords | None, near: NearDuplicates | None
) -> GroupedRecords:
    """Group all records, and assign each to a split."""
    keyed, keys = key_groups(known.listing["group"].take(pa.array(known.files.rows)), known.found.record_of())
    near_groups = near.groups if near else Groups.none()
    classes, labels, numbered = _numbered(known, known.rows, config, previous)
    splits = assign_by_kind(
        known.kind,
        LabelsToSplit(labels, numbered, known.rows, len(classes)),
        known.given[known.rows],
        hash_ranks(known.ids, config.seed, SPLIT),
        config.splits.fractions(),
        previous.split_of(known.ids) if previous is not None else None,
        units_of(len(known.ids), [keyed, near_groups]),
    )
    return GroupedRecords(near_groups, keyed, keys, splits, known.listing["uri"], known.rows)


def _deal(
    known: _Known,
    rows: Rows,
    records: RecordsToDeal,
    config: PrepareConfig,
    previous: PreviousRecords | None,
) -> Dealt:
    """Deal the records that stay to shards; ``rows`` are their rows in the listing."""
    held = previous.held if previous is not None else None
    homes = None
    if held is not None:
        extra = feature_columns(features_of(known.listing))
        homes = held.homes(records, known.listing.select(["uri", "group", *extra]).take(pa.array(rows)))
    return deal(records, config, held, homes)


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
