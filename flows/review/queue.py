"""The queue of a version: a row for each record that something was found of, the most important first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.flows.review.findings import REASONS, Finding, Reviewed, runs_of
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import Shard
from shardmill.infra.format.known_features import NO_CLASS


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is stored: its shard, its bytes there, and what the index says of it."""

    shard: Shard
    offset_bytes: int
    length_bytes: int
    label: str
    uri: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One record to look at.

    Attributes:
        record: id of its content.
        place: None: it is no record, as an input in quarantine.
        findings: name of a reason -> what was found; the most important first.
    """

    record: str
    place: Place | None
    findings: Mapping[str, Finding]

    @property
    def label(self) -> str:
        """Its class; "" without one."""
        return self.place.label if self.place else ""

    @property
    def uri(self) -> str:
        """Its source, relative to the source of the dataset."""
        return self.place.uri if self.place else next(iter(self.findings.values())).uri

    @property
    def suggested(self) -> str:
        """The class that a run suggests; "" where none does, or it is the class that it has."""
        found = (each.suggested for each in self.findings.values() if each.suggested)
        return next((name for name in found if name != self.label), "")

    @property
    def run(self) -> str:
        """The run that suggested something; "" without one."""
        return next((each.run for each in self.findings.values() if each.run), "")


@dataclass(frozen=True)
class Queue:
    """All that was found in a version.

    Attributes:
        version: the version.
        rows: the most important first: by the first reason, then by the number of reasons, then by score.
        problems: what could not be read, as sentences.
        by_record: the same by record id.
    """

    version: DatasetVersion
    rows: Sequence[QueueRow]
    problems: Sequence[str] = ()
    by_record: Mapping[str, QueueRow] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_record", {row.record: row for row in self.rows})

    def counts(self, decided: Collection[str]) -> dict[str, int]:
        """Return the name of each reason -> number of its rows that are not decided."""
        found = {reason.name: 0 for reason in REASONS}
        for row in self.rows:
            if row.record not in decided:
                for name in row.findings:
                    found[name] += 1
        return found


def make_queue(version: DatasetVersion, runs: Path) -> Queue:
    """Return the queue of a version.

    Args:
        version: a whole version.
        runs: the folder of the training runs on this machine; it need not exist.
    """
    reviewed = Reviewed(version, runs_of(runs, version.name))
    classes = frozenset(version.manifest.classes)
    findings: dict[str, dict[str, Finding]] = {}
    for reason in REASONS:
        for finding in reason.find(reviewed):
            if finding.suggested is not None and finding.suggested not in classes:
                finding = replace(finding, suggested=None)  # a class of another data set of the run
            # Of several runs the newest, which comes first, tells.
            findings.setdefault(finding.record, {}).setdefault(reason.name, finding)
    places = _places(version, findings)
    order = {reason.name: number for number, reason in enumerate(REASONS)}
    rows = []
    for record, of_record in findings.items():
        place = places.get(record)
        held = {name: each for name, each in of_record.items() if _holds(each, place)}
        if held:
            rows.append(QueueRow(record, place, held))

    def importance(row: QueueRow) -> tuple[int, int, float, str]:
        name, first = next(iter(row.findings.items()))
        return order[name], -len(row.findings), -first.score, row.record

    return Queue(version, sorted(rows, key=importance), reviewed.problems)


def _holds(finding: Finding, place: Place | None) -> bool:
    """Tell whether what was found of a content still holds for the record that has it."""
    if place is None:
        return bool(finding.uri)
    return finding.label in (None, place.label) and not finding.uri


def _places(version: DatasetVersion, records: Collection[str]) -> dict[str, Place]:
    """Return record id -> place, of those records that the version has."""
    if not records:
        return {}
    wanted = pa.array(sorted(records), pa.string())
    names = version.manifest.classes
    columns = ["id", "offset_bytes", "length_bytes", "label", "source_uri"]
    found = {}
    for shard in version.manifest.shards:
        rows = version.rows(shard, columns)
        for row in rows.filter(pc.is_in(rows["id"], wanted)).to_pylist():
            has_class = row["label"] is not None and row["label"] != NO_CLASS
            label = names[row["label"]] if has_class and names else ""
            place = Place(shard, row["offset_bytes"], row["length_bytes"], label, row["source_uri"] or "")
            found[row["id"]] = place
    return found
