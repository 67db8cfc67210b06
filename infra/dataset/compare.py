"""Compare two versions: inputs by their URIs, records by their ids.

Parts of the inputs that both versions name are equal and are not read. The cost of comparing a large version
with its successor therefore grows with the changes, not with the versions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.dataset.feature_changes import find_feature_changes
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import RECORD

EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Change:
    """One input or record that differs.

    Attributes:
        uri: URI of the input, or of the source of the record.
        record_id: id of the record; None: it is none.
        before, after: the values that changed, or None.
        feature: the name of the feature that has these values.
    """

    uri: str
    record_id: str | None
    before: str | None = None
    after: str | None = None
    feature: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """All differences of one kind: their number, and the first examples by URI."""

    count: int = 0
    examples: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """The differences between a version ``before`` and a version ``after``.

    Attributes:
        before, after: ``name@version``.
        inputs_added, inputs_removed: URIs that only one version has.
        inputs_changed: URIs whose content (SHA-256) differs.
        outcomes_changed: URIs whose content is the same and whose outcome differs (a record, then a
            duplicate).
        records_added, records_removed: contents that are a record in one version only.
        relabelled: records whose label differs.
        features_changed: records that have another mask, other boxes, or other values of a feature that both
            versions have.
        moved: records whose split differs.
        class_counts: class -> number of records before and after, for every class of either version.
        num_shards_inherited: shards that both versions name.
        num_shards_written, num_bytes_written: shards that only ``after`` names.
    """

    before: str
    after: str
    inputs_added: Changes
    inputs_removed: Changes
    inputs_changed: Changes
    outcomes_changed: Changes
    records_added: Changes
    records_removed: Changes
    relabelled: Changes
    features_changed: Changes
    moved: Changes
    class_counts: dict[str, tuple[int, int]]
    num_shards_inherited: int
    num_shards_written: int
    num_bytes_written: int

    @property
    def is_empty(self) -> bool:
        """Tell whether both versions have the same inputs and the same records."""
        return not any(changes.count for changes in self.changes().values())

    def changes(self) -> dict[str, Changes]:
        """Kind of change -> its changes, in the order of the attributes."""
        return {name: value for name in self.__slots__ if isinstance(value := getattr(self, name), Changes)}

    def to_json(self) -> dict[str, Any]:
        """The differences as values that JSON can hold."""
        return asdict(self)


@checked
def diff(before: DatasetVersion, after: DatasetVersion, examples: int = EXAMPLES) -> VersionDiff:
    """Compare two versions, most often of one dataset.

    Args:
        before: the older version.
        after: the newer version.
        examples: the number of examples to give for each kind of change.

    Raises:
        UsageError: an argument is of another type, or ``examples`` is below 0.
        CorruptDataError: a file that a manifest names is missing or unreadable.
    """
    at_least(0, examples=examples)
    old, new = differing_inputs(before, after)
    in_new, in_old = _match(old, new, "uri"), _match(new, old, "uri")
    was, now = _common(old, new, "uri")
    changed = _differs(was, now, "sha256")
    reassessed = pc.and_(pc.invert(changed), _differs(was, now, "outcome"))
    records = _Records.of(old, new)
    num_other, others = find_feature_changes(before, after, examples)
    known = {shard.path for shard in before.manifest.shards} if same_place(before, after) else set()
    written = [shard for shard in after.manifest.shards if shard.path not in known]
    return VersionDiff(
        before=before.ref,
        after=after.ref,
        inputs_added=_changes(new.filter(pc.is_null(in_old)), examples),
        inputs_removed=_changes(old.filter(pc.is_null(in_new)), examples),
        inputs_changed=_pairs(was, now, changed, "sha256", examples),
        outcomes_changed=_pairs(was, now, reassessed, "outcome", examples),
        records_added=_changes(records.added, examples),
        records_removed=_changes(records.removed, examples),
        relabelled=_pairs(records.was, records.now, records.differs("label"), "label", examples),
        features_changed=Changes(num_other, tuple(Change(**other) for other in others)),
        moved=_pairs(records.was, records.now, records.differs("split"), "split", examples),
        class_counts=_class_counts(before, after),
        num_shards_inherited=len(after.manifest.shards) - len(written),
        num_shards_written=len(written),
        num_bytes_written=sum(shard.num_bytes + shard.index_bytes for shard in written),
    )


@dataclass(frozen=True, slots=True)
class _Records:
    """The input rows of records: in one version only, and in both versions, side by side."""

    removed: pa.Table
    added: pa.Table
    was: pa.Table
    now: pa.Table

    @classmethod
    def of(cls, old: pa.Table, new: pa.Table) -> _Records:
        old, new = (table.filter(pc.equal(table["outcome"], RECORD)) for table in (old, new))
        removed = old.filter(pc.is_null(_match(old, new, "record_id")))
        added = new.filter(pc.is_null(_match(new, old, "record_id")))
        return cls(removed, added, *_common(old, new, "record_id"))

    def differs(self, column: str) -> pa.ChunkedArray:
        return _differs(self.was, self.now, column)


def same_place(before: DatasetVersion, after: DatasetVersion) -> bool:
    """Tell whether two versions are of one dataset, so that equal paths are equal files."""
    return before.storage.uri == after.storage.uri


def differing_inputs(before: DatasetVersion, after: DatasetVersion) -> tuple[pa.Table, pa.Table]:
    """Return the input rows of each version, without the parts that both versions name."""
    shared: set[str] = set()
    if same_place(before, after):
        shared = {part.path for part in before.manifest.inputs}
        shared &= {part.path for part in after.manifest.inputs}
    return before.inputs(without=shared), after.inputs(without=shared)


def _match(rows: pa.Table, others: pa.Table, key: str) -> pa.ChunkedArray:
    """For each row, the position of its key among the others, or null."""
    return pc.index_in(rows[key], others[key].combine_chunks())


def _common(old: pa.Table, new: pa.Table, key: str) -> tuple[pa.Table, pa.Table]:
    """The rows whose key is in both tables, side by side in the order of the old table."""
    places = _match(old, new, key)
    return old.filter(pc.is_valid(places)), new.take(places.drop_null())


def _differs(was: pa.Table, now: pa.Table, column: str) -> pa.ChunkedArray:
    filled = [pc.fill_null(table[column], "") for table in (was, now)]
    return pc.not_equal(filled[0].combine_chunks(), filled[1].combine_chunks())


def _changes(rows: pa.Table, examples: int) -> Changes:
    return Changes(
        rows.num_rows, tuple(Change(row["uri"], row["record_id"]) for row in _first(rows, examples))
    )


def _pairs(was: pa.Table, now: pa.Table, differs: pa.Array, column: str, examples: int) -> Changes:
    was, now = was.filter(differs), now.filter(differs)
    columns = {name: now[name] for name in ("uri", "record_id")}
    both = pa.table(columns | {"before": was[column], "after": now[column]})
    found = _first(both, examples)
    return Changes(both.num_rows, tuple(Change(**row) for row in found))


def _first(rows: pa.Table, count: int) -> list[dict[str, Any]]:
    if not rows.num_rows or not count:
        return []
    first = pc.select_k_unstable(rows, k=min(count, rows.num_rows), sort_keys=[("uri", "ascending")])
    found: list[dict[str, Any]] = rows.take(first).to_pylist()
    return found


def _class_counts(before: DatasetVersion, after: DatasetVersion) -> dict[str, tuple[int, int]]:
    counts: dict[str, list[int]] = {}
    for at, version in enumerate((before, after)):
        for split in version.manifest.splits.values():
            for name, count in split.class_counts.items():
                counts.setdefault(name, [0, 0])[at] += count
    return {name: (old, new) for name, (old, new) in sorted(counts.items())}
