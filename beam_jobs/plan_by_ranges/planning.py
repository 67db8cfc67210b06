"""A plan by ranges, step by step; ``shardmill.beam_jobs.plan.steps`` makes the same in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig, RunnerConfig
from shardmill.beam_jobs.execution.runners import run_task
from shardmill.beam_jobs.plan import PlannedVersion, PlanSummary, PreviousRecords
from shardmill.beam_jobs.plan.columns import Codes
from shardmill.beam_jobs.plan.leaks import Dropped, settle_leaks
from shardmill.beam_jobs.plan.similarity.near_duplicates import (
    NearDuplicates,
    find_near_duplicates,
    near_duplicates_table,
)
from shardmill.beam_jobs.plan.statistics import statistics_of
from shardmill.beam_jobs.plan_by_ranges.files import (
    FIGURES,
    INPUTS,
    PLANNED,
    QUALITY,
    Dealing,
    GatherFiles,
    SendFiles,
    StoredFiles,
    WriteInputs,
)
from shardmill.beam_jobs.plan_by_ranges.gathering import GatherFacts
from shardmill.beam_jobs.plan_by_ranges.hashes import (
    COUNTS,
    GROUPED,
    HOMES,
    REPEATS,
    AssignSplits,
    FindDuplicates,
    read_conflicts,
    write_previous,
)
from shardmill.beam_jobs.plan_by_ranges.shards import (
    DealRecords,
    OrderShards,
    PlannedOnStorage,
    read_counts,
)
from shardmill.beam_jobs.plan_by_ranges.splitting import (
    GroupByKey,
    GroupedInRanges,
    KnownSplits,
    Seats,
    codes_of,
    divide,
)
from shardmill.beam_jobs.plan_by_ranges.tables import Int64, RangeTask, RowsOnStorage
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.beam_jobs.tables.features import features_of
from shardmill.beam_jobs.tables.ids import digest_bytes, record_ids
from shardmill.infra.format.contract import INPUTS_SCHEMA, SPLITS, Leaks, QualityLimits
from shardmill.infra.format.known_features import NO_CLASS
from shardmill.infra.format.quality import QualityCounts, with_counts


@dataclass(frozen=True)
class Inputs(RowsOnStorage):
    """The rows of all inputs: INPUTS_SCHEMA, sorted by URI."""

    def uris(self) -> Iterable[pa.Array]:
        """Return the URIs of all inputs in chunks: string."""
        return self.column("uri")


@dataclass(frozen=True)
class PlanOnStorage(PlannedVersion[Inputs, PlannedOnStorage]):
    """Plan of a version with its rows in the spool; see ``PlannedVersion`` for the attributes."""


def plan_on_storage(
    gathering: GatherFacts,
    config: PrepareConfig,
    previous: PreviousRecords | None = None,
    run: Callable[[RangeTask, Sequence[int]], object] | None = None,
) -> PlanOnStorage:
    """Plan a version by ranges, and keep its rows in the spool.

    Work that is there already is not done again.

    Args:
        gathering: finds the facts of each range of files.
        config: groups, splits, shards, seed and runner.
        previous: the previous version, whose records keep their split and classes their number.
        run: does the given numbers of a task; by default on the runner of the settings.

    Raises:
        DataError: two files with different content share a record id.
        LeakError: a group is in several splits, and groups.leakage is "fail".
    """
    return _Planning(gathering, config, previous, run).run()


def _run_on_runner(runner: RunnerConfig, task: RangeTask, numbers: Sequence[int]) -> None:
    run_task(task, numbers, runner)


class _Planning:
    def __init__(
        self,
        gathering: GatherFacts,
        config: PrepareConfig,
        previous: PreviousRecords | None,
        run: Callable[[RangeTask, Sequence[int]], object] | None,
    ) -> None:
        self.run_task = run or partial(_run_on_runner, config.runner)
        self.gathering, self.config = gathering, config
        self.kind, self.seed = config.source.label_kind, config.seed
        self.previous = previous.of_kind(self.kind) if previous is not None else None
        self.tables = gathering.tables
        self.row_starts = np.array([part.start for part in gathering.ranges], np.int64)

    def run(self) -> PlanOnStorage:
        held = self.previous.held if self.previous is not None else None
        write_previous(self.tables, self.previous, self.seed)
        here = self.gathering.known is not None  # this process has the facts of the known files
        left_out, gathered = self.config.filter.quality, None
        if left_out:
            self._run(GatherFiles(self.tables, self.gathering), here=here)
            gathered = self._limits()
        self._run(
            SendFiles(self.tables, self.gathering, self.seed, held is not None, left_out, gathered), here=here
        )
        self._run(FindDuplicates(self.tables, self.seed))
        self._run(GroupByKey(self.tables))
        near, near_members = self._near_duplicates()
        grouped = GroupedInRanges.of(self.tables, near, near_members, self.seed)
        known = self._known_splits()
        splits, ends, first = divide(known, grouped, self.config.splits.fractions())
        leaks, dropped = settle_leaks(grouped.records(splits), self.config.groups.leakage)
        self._write_grouped(grouped, splits, dropped)
        classes, labels = self._classes(known, grouped, dropped)
        seats = Seats(known.classes, labels, ends, first, self.row_starts)
        held = None if self.previous is None else self.previous.numbered_as(classes).held
        sizes = held.sizes if held is not None and len(held.sizes) else None
        self._run(AssignSplits(self.tables, self.seed, seats, sizes))
        inherited = self._inherited(sizes)
        deal = DealRecords(self.tables, self.seed, max(1, len(labels)), inherited, self.row_starts)
        self._run(deal)
        counts = [read_counts(self.tables, number) for number in range(self.tables.ranges)]
        dealing = Dealing.of(counts, self.config.shards)
        none_label = None if self.kind == "class" else NO_CLASS
        self._run(WriteInputs(self.tables, self.gathering.ranges, dealing, none_label))
        self._run(OrderShards(self.tables, self.seed))
        return self._plan(grouped, splits, leaks, dropped, classes, dealing, inherited)

    def _run(self, task: RangeTask, *, here: bool = False) -> None:
        """Run a task for the ranges that it was not done for; in this process if ``here``."""
        if self.tables.is_finished(task.name):
            return
        done = self.tables.numbers(task.output)
        todo = [number for number in range(self.tables.ranges) if number not in done]
        if here:
            for number in todo:
                task.do(number)
        elif todo:
            self.run_task(task, todo)
        self.tables.finish(task)

    def _limits(self) -> dict[str, QualityLimits]:
        counts = QualityCounts()
        for number in range(self.tables.ranges):
            counts.add_table(self.tables.read(QUALITY, number))
        return counts.limits()

    def _near_duplicates(self) -> tuple[NearDuplicates | None, pa.Table]:
        """Find near-duplicates, in this process, and return their records: MEMBER_COLUMNS and hash."""
        if not self.config.groups.near_duplicates:
            return None, self._members(np.empty(0, np.int64))
        repeats = np.concatenate(
            [self.tables.read(REPEATS, at)["row"].to_numpy() for at in range(self.tables.ranges)]
        )
        looks, rows = [], []
        for number, start in enumerate(self.row_starts.tolist()):
            stored = StoredFiles.read_from(self.tables, number)
            of_range = start + stored.rows.astype(np.int64)
            kept = ~np.isin(of_range, repeats)
            looks += stored.facts["look"].take(pa.array(stored.places[kept])).chunks
            rows.append(of_range[kept])
        found = find_near_duplicates(pa.chunked_array(looks, pa.binary()), self.config.groups)
        del looks
        groups = found.groups
        members, places = np.unique(groups.records, return_inverse=True)
        table = self._members(np.concatenate(rows)[members])
        moved = type(groups)(places.reshape(-1), groups.groups, groups.count, groups.labels, groups.order)
        return NearDuplicates(moved, found.distance), table

    def _members(self, rows: Int64) -> pa.Table:
        """Return MEMBER_COLUMNS and the perceptual hash of the records at some rising rows."""
        parts: list[pa.Table] = []
        ends = np.append(self.row_starts[1:], np.iinfo(np.int64).max)
        for number, (start, end) in enumerate(zip(self.row_starts.tolist(), ends.tolist(), strict=True)):
            here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, end)]
            if not len(here) and parts:
                continue
            stored = StoredFiles.read_from(self.tables, number)
            local = (here - start).astype(np.int32)
            places = stored.places[np.searchsorted(stored.rows, local)] if len(here) else local
            facts, listed = stored.facts.take(pa.array(places)), stored.listing.take(pa.array(local))
            ids = record_ids(digest_bytes(facts["sha256"]))
            before = self.previous.split_of(ids) if self.previous else np.full(len(ids), -1, np.int8)
            given = pc.fill_null(pc.index_in(listed["split"], pa.array(SPLITS, pa.string())), -1)
            columns = {"row": here, "uri": listed["uri"], "id": ids, "label": listed["label"]}
            columns |= {"given": given.cast(pa.int8()), "previous": before}
            parts.append(pa.table(columns | {"perceptual_hash": facts["perceptual_hash"]}))
        return pa.concat_tables(parts).combine_chunks()

    def _known_splits(self) -> KnownSplits:
        """Count all records by class and by the splits that are known."""
        tables = [self.tables.read(COUNTS, at) for at in range(self.tables.ranges)]
        classes = [""]
        if self.kind == "class":
            found = {label for table in tables for label in table["label"].to_pylist()}
            classes = self._numbered(found)
        counts = np.zeros((len(tables), len(classes), len(SPLITS) + 1, len(SPLITS) + 1), np.int64)
        for number, table in enumerate(tables):
            codes = codes_of(table["label"], classes)
            given, before = (table[name].to_numpy() + 1 for name in ("given", "previous"))
            np.add.at(counts[number], (codes, given, before), table["count_all"].to_numpy())
        return KnownSplits(classes, counts)

    def _numbered(self, found: set[str]) -> list[str]:
        if self.previous is None:
            return sorted(found)
        return self.previous.number_classes(found, drop_empty=self.config.filter.drop_empty_classes)

    def _classes(
        self, known: KnownSplits, grouped: GroupedInRanges, dropped: Dropped
    ) -> tuple[list[str], list[str]]:
        """Return the names of the classes, and the list of names that label numbers refer to."""
        if self.kind != "class":
            return [], [""]
        left = known.counts.sum(axis=(0, 2, 3))
        labels = grouped.table["label"].take(pa.array(dropped.records))
        np.subtract.at(left, known.codes(labels), 1)
        classes = self._numbered({known.classes[code] for code in np.flatnonzero(left).tolist()})
        return classes, classes

    def _write_grouped(self, grouped: GroupedInRanges, splits: Codes, dropped: Dropped) -> None:
        """Write the splits of the records in groups, where the ranges of hashes read them."""
        places = np.full(len(splits), -1, np.int64)
        places[dropped.records] = np.arange(len(dropped.records))
        messages = one_chunk(pa.chunked_array([dropped.messages])).take(pa.array(places, mask=places < 0))
        columns = {"row": grouped.table["row"], "split": splits, "dropped": messages.cast(pa.string())}
        table, targets = pa.table(columns), grouped.ranges_of(self.tables.ranges)
        for number in range(self.tables.ranges):
            self.tables.write(GROUPED, number, table.take(pa.array(np.flatnonzero(targets == number))))

    def _inherited(self, sizes: Int64 | None) -> Int64:
        if sizes is None:
            return np.empty(0, np.int64)
        found = sum(self.tables.read(HOMES, at)["found"].to_numpy() for at in range(self.tables.ranges))
        return np.flatnonzero(found == sizes)

    def _plan(
        self,
        grouped: GroupedInRanges,
        splits: Codes,
        leaks: Leaks,
        dropped: Dropped,
        classes: list[str],
        dealing: Dealing,
        inherited: Int64,
    ) -> PlanOnStorage:
        with self.tables.open(PLANNED, 0) as reader:
            planned_schema = reader.schema
        features = features_of(planned_schema.empty_table())
        lengths = tuple(part.stop - part.start for part in self.gathering.ranges)
        crossing = 0
        for number in range(self.tables.ranges):
            with self.tables.open(FIGURES, number) as reader:
                crossing += int(reader.schema.metadata[b"crossing"])
        return PlanOnStorage(
            input_rows=Inputs(self.tables, INPUTS, lengths, INPUTS_SCHEMA),
            planned=PlannedOnStorage(self.tables, PLANNED, tuple(dealing.lengths()), planned_schema),
            shards=dealing.cut.shards,
            summary=PlanSummary(
                classes=classes,
                label_conflicts=read_conflicts(self.tables),
                cross_split_duplicates=crossing,
                leaks=leaks,
                statistics=statistics_of(self._figures(), self.config.image.may_be_float),
                quality=with_counts(self._limits(), self._figures()),
                features=features,
                label_kind=self.kind,
            ),
            near_duplicates=self._near_table(grouped, splits, dropped),
            inherited=inherited.tolist(),
        )

    def _figures(self) -> Iterator[pa.Table]:
        return (self.tables.read(FIGURES, number) for number in range(self.tables.ranges))

    def _near_table(self, grouped: GroupedInRanges, splits: Codes, dropped: Dropped) -> pa.Table | None:
        if grouped.near is None:
            return None
        stays = splits.copy()
        stays[dropped.records] = -1
        every = np.arange(len(splits), dtype=np.int32)
        table = grouped.table
        return near_duplicates_table(
            grouped.near, table["perceptual_hash"], table, every, every, table["id"].to_numpy(), stays
        )
