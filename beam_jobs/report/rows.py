"""What the report says of inputs: pure functions from the table of inputs to small rows.

Tables have ``INPUTS_SCHEMA`` and may have millions of rows, so everything is counted by Arrow; Python
sees only what is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from infra.contract import DUPLICATE, FILTERED, RECORD, LabelConflict, Manifest

EXAMPLES_PER_REASON = 25
DUPLICATE_GROUPS_SHOWN = 60
URIS_PER_GROUP = 8


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class before (inputs by outcome; filtered files are not counted) and after (records by split)."""

    name: str
    outcomes: dict[str, int]
    splits: dict[str, int]

    @property
    def num_inputs(self) -> int:
        return sum(self.outcomes.values())

    @property
    def num_records(self) -> int:
        return sum(self.splits.values())


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """One reason for which inputs are not in the shards, with the first of them as examples."""

    reason: str
    count: int
    examples: tuple[tuple[str, str], ...]  # (uri, message)


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Inputs with the same bytes: the one that was kept and the others."""

    record_id: str
    kept: str  # uri
    label: str
    others: tuple[str, ...]  # uris, the first few
    num_others: int


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The largest groups of duplicates, and how many groups there are."""

    num_groups: int
    groups: tuple[DuplicateGroup, ...]

    def record_ids(self, conflicts: Sequence[LabelConflict]) -> frozenset[str]:
        """Ids of the records whose pictures the page shows beside a group or a conflict."""
        shown = {conflict.sha256[:16] for conflict in conflicts[:DUPLICATE_GROUPS_SHOWN]}
        return frozenset(shown | {group.record_id for group in self.groups})


def count_by_class(inputs: pa.Table, manifest: Manifest) -> list[ClassRow]:
    """A row a class of the manifest, in its order, and one for every further label of an input."""
    labelled = inputs.filter(
        pc.and_(pc.is_valid(inputs["label"]), pc.not_equal(inputs["outcome"], FILTERED))
    ).select(["label", "outcome"])
    before: dict[str, dict[str, int]] = {}
    for row in labelled.group_by(["label", "outcome"]).aggregate([([], "count_all")]).to_pylist():
        before.setdefault(row["label"], {})[row["outcome"]] = row["count_all"]
    names = [*manifest.classes, *sorted(set(before) - set(manifest.classes))]
    return [
        ClassRow(
            name,
            before.get(name, {}),
            {split: summary.class_counts.get(name, 0) for split, summary in manifest.splits.items()},
        )
        for name in names
    ]


def reason_rows(inputs: pa.Table, outcome: str) -> list[ReasonRow]:
    """Why inputs had this outcome, the most frequent reason first."""
    rows = inputs.filter(pc.equal(inputs["outcome"], outcome))
    rows = rows.set_column(
        rows.schema.get_field_index("reason"), "reason", pc.fill_null(rows["reason"], "not stated")
    )
    counts = {
        row["reason"]: row["count_all"]
        for row in rows.group_by("reason").aggregate([([], "count_all")]).to_pylist()
    }
    found = []
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        of_reason = rows.filter(pc.equal(rows["reason"], reason)).sort_by("uri")
        first = of_reason.select(["uri", "message"]).slice(0, EXAMPLES_PER_REASON).to_pylist()
        found.append(ReasonRow(reason, count, tuple((row["uri"], row["message"] or "") for row in first)))
    return found


def duplicate_groups(inputs: pa.Table) -> Duplicates:
    """The groups of inputs that repeat a record, the largest first."""
    repeats = inputs.filter(pc.equal(inputs["outcome"], DUPLICATE)).select(["uri", "record_id"])
    if not repeats.num_rows:
        return Duplicates(0, ())
    sizes = (
        repeats.group_by("record_id")
        .aggregate([([], "count_all")])
        .sort_by([("count_all", "descending"), ("record_id", "ascending")])
    )
    shown = sizes.slice(0, DUPLICATE_GROUPS_SHOWN)
    ids = shown["record_id"].combine_chunks()
    kept_rows = inputs.filter(
        pc.and_(pc.equal(inputs["outcome"], RECORD), pc.is_in(inputs["record_id"], ids))
    ).select(["uri", "label", "record_id"])
    kept = {row["record_id"]: row for row in kept_rows.to_pylist()}
    others: dict[str, list[str]] = {}
    for row in repeats.filter(pc.is_in(repeats["record_id"], ids)).sort_by("uri").to_pylist():
        of_group = others.setdefault(row["record_id"], [])
        if len(of_group) < URIS_PER_GROUP:
            of_group.append(row["uri"])
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
    return Duplicates(sizes.num_rows, groups)
