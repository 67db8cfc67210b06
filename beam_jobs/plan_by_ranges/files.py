"""Tasks over ranges of the listing: send the files to the ranges of hashes, and write the rows of the inputs.

The other direction is here too: once every record has its split and its place in its shard, the rows of the
inputs of a range are made, and the rows of its records go to the ranges of shards (``Dealing``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ShardsConfig
from shardmill.beam_jobs.plan.columns import SPLIT, Rows, hash_ranks, rows_where, split_codes
from shardmill.beam_jobs.plan.leaks import Dropped
from shardmill.beam_jobs.plan.quality import count_quality, without_flagged
from shardmill.beam_jobs.plan.rows import FACTS_OF_INPUTS, InputRows, PlannedRecords
from shardmill.beam_jobs.plan.shards import CutSplits, PlannedShard
from shardmill.beam_jobs.plan.similarity.groups import Duplicates, Files
from shardmill.beam_jobs.plan_by_ranges.gathering import (
    FACTS,
    LISTED,
    LISTING,
    SEND_FILES,
    FileRange,
    GatherFacts,
)
from shardmill.beam_jobs.plan_by_ranges.tables import Int64, PlanTables, RangeTask, range_of
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.tables.features import feature_columns, features_of
from shardmill.beam_jobs.tables.ids import digest_bytes, record_ids
from shardmill.infra.format.contract import QualityLimits
from shardmill.infra.format.quality import QUALITY_COLUMNS

INPUTS, FIGURES, PLANNED, QUALITY = "inputs", "figures", "planned", "quality"
TO_HASHES, TO_SHARDS, FATES, PLACES = "to-hashes", "to-shards", "fates", "places"
SHARD_COLUMN = "number_of_shard"


@dataclass(frozen=True)
class StoredFiles:
    """The files of a range that have a stored image.

    Attributes:
        listing: LISTING_SCHEMA and columns of features, of the range.
        facts: PLACED_FACTS_SCHEMA.
        read: int32, rows of the range that were read.
        rows: int32 [F], rows of the range that have a stored image.
        places: int32 [F], row of each in the facts.
    """

    listing: pa.Table
    facts: pa.Table
    read: Rows
    rows: Rows
    places: Rows

    @classmethod
    def read_from(cls, tables: PlanTables, number: int) -> StoredFiles:
        """Read the tables of a range."""
        listing, facts = tables.read(LISTING, number), tables.read(FACTS, number)
        read = rows_where(listing["status"].to_numpy() == Status.TO_READ)
        places = rows_where(np.isin(facts["status"].to_numpy(), (Status.STORED, Status.STORED_BEFORE)))
        return cls(listing, facts, read, read[places], places)


def _gather(gathering: GatherFacts, number: int) -> None:
    """Write the listing and the facts of a range, and count the measures of their quality."""
    tables = gathering.tables
    gathering.gather(number)
    tables.write(QUALITY, number, count_quality(tables.read(FACTS, number)).to_table())


@dataclass(frozen=True)
class GatherFiles(RangeTask):
    """Gathers each range before any is sent: only all ranges tell which files ``filter.quality`` leaves out.

    Attributes:
        gathering: writes the tables.
    """

    name: ClassVar[str] = "GatherFiles"
    output: ClassVar[str] = QUALITY
    gathering: GatherFacts

    def do(self, number: int) -> None:
        """Gather the files of a range."""
        _gather(self.gathering, number)


@dataclass(frozen=True)
class SendFiles(RangeTask):
    """Sends the stored files of each range to the ranges of hashes of their contents.

    Attributes:
        gathering: writes the tables that are not there.
        seed: seed of the plan.
        carries_features: whether the columns of features are sent too.
        left_out: quality flags whose files are left out.
        known_limits: of the flags, once the tables are gathered; None: they are gathered here.
    """

    name: ClassVar[str] = SEND_FILES
    output: ClassVar[str] = TO_HASHES
    received: ClassVar[tuple[str, ...]] = (LISTED,)
    gathering: GatherFacts
    seed: int
    carries_features: bool
    left_out: tuple[str, ...] = ()
    known_limits: Mapping[str, QualityLimits] | None = None

    def do(self, number: int) -> None:
        """Send the files of a range."""
        tables = self.tables
        if self.known_limits is None:
            _gather(self.gathering, number)
        else:
            facts = tables.read(FACTS, number)
            kept = without_flagged(facts, self.known_limits, self.left_out)
            if kept is not facts:
                tables.write(FACTS, number, kept)
        stored = StoredFiles.read_from(tables, number)
        extra = feature_columns(features_of(stored.listing)) if self.carries_features else []
        rows, places = pa.array(stored.rows), pa.array(stored.places)
        listed = stored.listing.select(["uri", "label", "group", *extra]).take(rows)
        columns = {
            "row": pa.array(self.gathering.ranges[number].start + stored.rows.astype(np.int64)),
            "given": pa.array(split_codes(stored.listing["split"])[stored.rows]),
            "sha256": stored.facts["sha256"].take(places),
            "stored_bytes": stored.facts["stored_bytes"].take(places),
        }
        columns |= {name: listed[name] for name in listed.column_names}
        ids = record_ids(digest_bytes(stored.facts["sha256"]))[stored.places]
        schema = pa.schema(
            [pa.field(name, column.type) for name, column in columns.items() if name not in extra]
            + [stored.listing.schema.field(name) for name in extra]
        )
        targets = range_of(hash_ranks(ids, self.seed, SPLIT), tables.ranges)
        tables.send(TO_HASHES, number, pa.table(columns).select(schema.names).cast(schema), targets)


@dataclass(frozen=True)
class WriteInputs(RangeTask):
    """Makes the rows of the inputs of each range, and sends its records to the ranges of shards.

    Attributes:
        ranges: ranges of the files.
        dealing: which shard a record goes to.
        none_label: the label of all records, if they have none; else None.
    """

    name: ClassVar[str] = "WriteInputs"
    output: ClassVar[str] = TO_SHARDS
    received: ClassVar[tuple[str, ...]] = (FATES, PLACES)
    ranges: Sequence[FileRange]
    dealing: Dealing
    none_label: int | None

    def do(self, number: int) -> None:
        """Write the rows of a range."""
        stored = StoredFiles.read_from(self.tables, number)
        fates = _sorted_by_row(self.tables.receive(FATES, number))
        rows = input_rows(stored, fates)
        self.tables.write(INPUTS, number, rows.table())
        self._write_figures(number, stored, fates)
        placed = _sorted_by_row(self.tables.receive(PLACES, number))
        local = (placed["row"].to_numpy() - self.ranges[number].start).astype(np.int32)
        places = stored.places[np.searchsorted(stored.rows, local)]
        labels = placed["label"].to_numpy()
        shards = self.dealing.shards_of(placed)
        if self.none_label is not None:
            labels = np.full(len(labels), self.none_label, np.int32)
        records = PlannedRecords(stored.listing, stored.facts, local, places, labels).table()
        records = records.append_column(SHARD_COLUMN, pa.array(shards, pa.int32()))
        self.tables.send(TO_SHARDS, number, records, self.dealing.range_of_shards(shards))

    def _write_figures(self, number: int, stored: StoredFiles, fates: pa.Table) -> None:
        """Write the counts that the statistics of the splits are added up from."""
        stays = pc.and_(pc.is_null(fates["original"]), pc.is_null(fates["dropped"]))
        chosen = np.flatnonzero(np.asarray(stays.to_numpy(), np.bool_))
        names = ["height", "width", "stored_bytes", "pixel_mean", "pixel_std", *QUALITY_COLUMNS]
        figures = stored.facts.select(names).take(pa.array(stored.places[chosen]))
        figures = figures.append_column("split", fates["split"].take(pa.array(chosen)))
        crossing = pc.and_(fates["crosses"], pc.is_null(fates["dropped"]))
        count = str(pc.sum(crossing).as_py() or 0)
        self.tables.write(FIGURES, number, figures.replace_schema_metadata({"crossing": count}))


def input_rows(stored: StoredFiles, fates: pa.Table) -> InputRows:
    """Return the rows of the inputs of a range.

    Args:
        stored: the files of the range.
        fates: of each file that has a stored image, in order: ``hashes.FATES_SCHEMA``.
    """
    # A repeat may have its original in another range: each gets one of its own, behind the files.
    count = len(stored.rows)
    is_repeat = np.asarray(pc.is_valid(fates["original"]).to_numpy(), np.bool_)
    repeats, records = np.flatnonzero(is_repeat), np.flatnonzero(~is_repeat)
    uris = pa.chunked_array(
        [*stored.listing["uri"].chunks, *fates["original"].drop_null().chunks], type=pa.string()
    )
    beyond = np.arange(len(repeats), dtype=np.int32)
    files = Files(
        rows=np.concatenate([stored.rows, stored.listing.num_rows + beyond]).astype(np.int32),
        places=np.concatenate([stored.places, np.zeros(len(repeats), np.int32)]),
        digests=digest_bytes(stored.facts["sha256"]),
        uris=uris,
    )
    found = Duplicates(
        kept=np.concatenate([records, count + beyond]).astype(np.int32),
        repeats=repeats,
        record_of_repeat=len(records) + beyond.astype(np.int64),
    )
    of_kept = fates.take(pa.array(np.concatenate([records, repeats])))
    dropped = np.flatnonzero(pc.is_valid(of_kept["dropped"]).to_numpy())
    return InputRows(
        stored.listing,
        stored.facts.select(FACTS_OF_INPUTS),
        stored.read,
        files,
        found,
        np.asarray(fates["crosses"].to_numpy(), np.bool_)[repeats],
        of_kept["split"].to_numpy(),
        Dropped(dropped, of_kept["dropped"].take(pa.array(dropped)).combine_chunks()),
    )


def _sorted_by_row(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.argsort(table["row"].to_numpy(), kind="stable"))).combine_chunks()


@dataclass(frozen=True)
class RangeCounts:
    """The tables of a range of hashes.

    Attributes:
        written: int64 [splits, classes], records to be written.
        wanted: int64 [splits], these and the inherited ones.
        stored_bytes: int64 [splits], of the stored images of those to be written.
    """

    written: Int64
    wanted: Int64
    stored_bytes: Int64


@dataclass(frozen=True)
class Dealing:
    """The shards, and the turn at which the records of each range, split and class begin to be dealt.

    Attributes:
        cut: the shards.
        turns: int64 [ranges, splits, classes].
        starts: int64 [ranges + 1], first shard of each range of shards.
    """

    cut: CutSplits
    turns: Int64
    starts: Int64

    @classmethod
    def of(cls, counts: list[RangeCounts], config: ShardsConfig) -> Self:
        """Choose the shards, as ``shardmill.beam_jobs.plan.shards.deal`` does."""
        written = np.stack([one.written for one in counts])
        of_class = written.sum(axis=0)
        wanted = np.sum([one.wanted for one in counts], axis=0)
        stored_bytes = np.sum([one.stored_bytes for one in counts], axis=0)
        cut = CutSplits.of(of_class.sum(axis=1), wanted, stored_bytes, config)
        before_class = np.cumsum(of_class, axis=1) - of_class
        before_range = np.cumsum(written, axis=0) - written
        return cls(cut, before_range + before_class, _cut(cut.shards, len(counts)))

    def shards_of(self, placed: pa.Table) -> Int64:
        """Return the number of the shard of each record: int64 [records].

        Args:
            placed: source, split, stratum and turn (within its range, split and stratum) of each.
        """
        source, split, stratum = (placed[name].to_numpy() for name in ("source", "split", "stratum"))
        turn = self.turns[source, split, stratum] + placed["turn"].to_numpy()
        return np.asarray(self.cut.first_shard[split] + turn % self.cut.num_shards[split])

    def range_of_shards(self, shards: npt.NDArray[np.int64]) -> Int64:
        """Return the range that each shard is in: int64 [N]."""
        return np.searchsorted(self.starts, shards, side="right") - 1

    def lengths(self) -> list[int]:
        """Return the number of records in each range of shards."""
        bounds = self.starts.tolist()
        return [sum(shard.length for shard in self.cut.shards[low:high]) for low, high in pairwise(bounds)]


def _cut(shards: list[PlannedShard], ranges: int) -> Int64:
    """Cut the shards into ranges of about equally many records: int64 [ranges + 1], the first of each."""
    total = sum(shard.length for shard in shards)
    starts = np.array([shard.start for shard in shards], np.int64)
    wanted = np.arange(ranges) * total // ranges
    cut = np.searchsorted(starts, wanted)
    cut[0] = 0
    return np.append(cut, len(shards)).astype(np.int64)
