"""Figures of the inputs: classes, reasons and duplicates.

The tables (INPUTS_SCHEMA) come in batches, so memory does not grow with the number of inputs. Arrow counts
them; only the values that are shown become Python values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardmill.infra.format.contract import DUPLICATE, FILTERED, QUARANTINED, RECORD, LabelConflict, Manifest
from shardmill.infra.storage.filesystem import Storage

EXAMPLES_PER_REASON = 25
REASONS_SHOWN = 40
DUPLICATE_GROUPS_SHOWN = 48
URIS_PER_GROUP = 6
_BATCH_ROWS = 1 << 16
_COLUMNS = ["uri", "size_bytes", "mtime_ns", "label", "outcome", "record_id", "reason", "message"]


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class before and after.

    Attributes:
        name: name of the class.
        outcomes: outcome -> number of inputs; filtered inputs are not counted.
        splits: split -> number of records.
    """

    name: str
    outcomes: dict[str, int]
    splits: dict[str, int]

    @property
    def num_inputs(self) -> int:
        """Number of inputs, without filtered ones."""
        return sum(self.outcomes.values())

    @property
    def num_records(self) -> int:
        """Number of records."""
        return sum(self.splits.values())


@dataclass(frozen=True, slots=True)
class LostInput:
    """An input that is in no shard, and why."""

    uri: str
    label: str | None
    message: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """A reason for which inputs are in no shard; the first of them by URI are its examples."""

    reason: str
    count: int
    examples: tuple[LostInput, ...]


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Inputs with the same bytes: the one that became the record, and the others."""

    record_id: str
    kept: str  # uri
    label: str
    others: tuple[str, ...]  # uris, the first few
    num_others: int


@dataclass(frozen=True, slots=True)
class DuplicateGroups:
    """The number of groups of duplicates, and the largest groups."""

    num_groups: int
    groups: tuple[DuplicateGroup, ...]

    def record_ids(self, conflicts: Sequence[LabelConflict]) -> frozenset[str]:
        """Return the ids of the records that the page shows beside a group or a label conflict."""
        shown = {conflict.sha256[:16] for conflict in conflicts[:DUPLICATE_GROUPS_SHOWN]}
        return frozenset(shown | {group.record_id for group in self.groups})


@dataclass(frozen=True, slots=True)
class InputFigures:
    """All that the page says of inputs. ``wanted`` are the inputs that were looked up, sorted by URI."""

    classes: list[ClassRow]
    quarantined: list[ReasonRow]
    filtered: list[ReasonRow]
    duplicates: DuplicateGroups
    wanted: list[LostInput]


class StoredInputs:
    """The rows of a version's inputs in batches, read anew by each iteration."""

    def __init__(self, storage: Storage, manifest: Manifest) -> None:
        self._storage = storage
        self._manifest = manifest

    def __iter__(self) -> Iterator[pa.Table]:
        for part in self._manifest.inputs:
            with self._storage.open_input(part.path) as stream:
                for batch in pq.ParquetFile(stream).iter_batches(_BATCH_ROWS, columns=_COLUMNS):
                    yield pa.Table.from_batches([batch])


def count_inputs(
    tables: Iterable[pa.Table], manifest: Manifest, wanted_uris: Collection[str] = ()
) -> InputFigures:
    """Count all inputs of a version.

    Args:
        tables: INPUTS_SCHEMA, or the columns of it that are used; iterated twice if there are duplicates.
        manifest: manifest of the version.
        wanted_uris: inputs to look up.
    """
    uris, wanted = pa.array(sorted(wanted_uris), pa.string()), []
    before: Counter[tuple[str, str]] = Counter()
    reasons = {QUARANTINED: _Reasons(), FILTERED: _Reasons()}
    repeats = [pa.table({"record_id": pa.array([], pa.string())})]
    for table in tables:
        _count_labels(before, table)
        for outcome, found in reasons.items():
            found.add(table.filter(pc.equal(table["outcome"], outcome)))
        repeats.append(table.filter(pc.equal(table["outcome"], DUPLICATE)).select(["record_id"]))
        wanted += [_lost(row) for row in table.filter(pc.is_in(table["uri"], uris)).to_pylist()]
    return InputFigures(
        _class_rows(before, manifest),
        reasons[QUARANTINED].rows(),
        reasons[FILTERED].rows(),
        _groups(pa.concat_tables(repeats), tables),
        sorted(wanted, key=lambda found: found.uri),
    )


def count_by_class(inputs: pa.Table, manifest: Manifest) -> list[ClassRow]:
    """Return one row per class of the manifest, in its order, and one for every further label of an input."""
    before: Counter[tuple[str, str]] = Counter()
    _count_labels(before, inputs)
    return _class_rows(before, manifest)


def reason_rows(inputs: pa.Table | Iterable[pa.RecordBatch], outcome: str) -> list[ReasonRow]:
    """Return the reasons of inputs with this outcome, the most frequent first."""
    found = _Reasons()
    for batch in inputs.to_batches() if isinstance(inputs, pa.Table) else inputs:
        table = pa.Table.from_batches([batch])
        found.add(table.filter(pc.equal(table["outcome"], outcome)))
    return found.rows()


def _count_labels(before: Counter[tuple[str, str]], table: pa.Table) -> None:
    labelled = table.filter(
        pc.and_(pc.is_valid(table["label"]), pc.not_equal(table["outcome"], FILTERED))
    ).select(["label", "outcome"])
    for row in labelled.group_by(["label", "outcome"]).aggregate([([], "count_all")]).to_pylist():
        before[row["label"], row["outcome"]] += row["count_all"]


def _class_rows(before: Counter[tuple[str, str]], manifest: Manifest) -> list[ClassRow]:
    outcomes: dict[str, dict[str, int]] = {}
    if manifest.label_kind != "class":  # inputs name several labels, or none: only records are counted
        before = Counter()
        for name in manifest.classes:
            found = sum(summary.class_counts.get(name, 0) for summary in manifest.splits.values())
            before[name, RECORD] = found
    for (label, outcome), count in before.items():
        outcomes.setdefault(label, {})[outcome] = count
    names = [*manifest.classes, *sorted(set(outcomes) - set(manifest.classes))]
    return [
        ClassRow(
            name,
            outcomes.get(name, {}),
            {split: summary.class_counts.get(name, 0) for split, summary in manifest.splits.items()},
        )
        for name in names
    ]


@dataclass(slots=True)
class _Reasons:
    """Counts of reasons, and the first inputs of each reason by URI."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[LostInput]] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        reason = pc.fill_null(rows["reason"], "not stated")
        rows = rows.set_column(rows.schema.get_field_index("reason"), "reason", reason)
        for row in rows.group_by("reason").aggregate([([], "count_all")]).to_pylist():
            self.counts[row["reason"]] += row["count_all"]
            of_reason = rows.filter(pc.equal(rows["reason"], row["reason"]))
            k = min(EXAMPLES_PER_REASON, of_reason.num_rows)
            first = pc.select_k_unstable(of_reason, k=k, sort_keys=[("uri", "ascending")])
            kept = self.examples.setdefault(row["reason"], [])
            kept += [_lost(found) for found in of_reason.take(first).to_pylist()]
            kept.sort(key=lambda found: found.uri)
            del kept[EXAMPLES_PER_REASON:]

    def rows(self) -> list[ReasonRow]:
        ranked = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return [ReasonRow(reason, count, tuple(self.examples[reason])) for reason, count in ranked]


def _lost(row: dict[str, Any]) -> LostInput:
    return LostInput(
        row["uri"], row["label"], row["message"] or "", row["size_bytes"] or 0, row["mtime_ns"] or 0
    )


def _groups(repeats: pa.Table, tables: Iterable[pa.Table]) -> DuplicateGroups:
    if not repeats.num_rows:
        return DuplicateGroups(0, ())
    sizes = repeats.group_by("record_id").aggregate([([], "count_all")])
    largest_first = [("count_all", "descending"), ("record_id", "ascending")]
    shown = sizes.sort_by(largest_first).slice(0, DUPLICATE_GROUPS_SHOWN)
    ids = shown["record_id"].combine_chunks()
    kept: dict[str, dict[str, Any]] = {}
    others: dict[str, list[str]] = {}
    for table in tables:
        for row in table.filter(pc.is_in(table["record_id"], ids)).sort_by("uri").to_pylist():
            if row["outcome"] == RECORD:
                kept[row["record_id"]] = row
            elif row["outcome"] == DUPLICATE:
                of_group = others.setdefault(row["record_id"], [])
                of_group.append(row["uri"])
                of_group.sort()
                del of_group[URIS_PER_GROUP:]
    groups = tuple(
        DuplicateGroup(
            row["record_id"],
            kept[row["record_id"]]["uri"],
            kept[row["record_id"]]["label"] or "",
            tuple(others[row["record_id"]]),
            row["count_all"],
        )
        for row in shown.to_pylist()
        if row["record_id"] in kept
    )
    return DuplicateGroups(sizes.num_rows, groups)
