"""Compare two versions: inputs by their URIs; records and their features, such as masks, by their ids.

Parts of the inputs that both versions name are equal and are not read. The cost of comparing a large version
with its successor therefore grows with the changes, not with the versions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import RECORD, Shard
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import LABELS, MASK, MASK_BYTES, MASK_SHA256, TARGETS

EXAMPLES = 10
# Labels have a comparison of their own. The index does not hold masks, and their length follows from them.
_NOT_COMPARED = frozenset({LABELS, TARGETS, MASK, MASK_BYTES})
_VALUES_SHOWN = 4

Bools = npt.NDArray[np.bool_]


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
    written = _Side.of(after, before).shards
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
        features_changed=_feature_changes(before, after, examples),
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


@dataclass(frozen=True, slots=True)
class _Side:
    """The shards that only one of two versions has. Their indexes are read a feature at a time."""

    version: DatasetVersion
    shards: list[Shard]

    @classmethod
    def of(cls, version: DatasetVersion, other: DatasetVersion) -> _Side:
        known = {shard.path for shard in other.manifest.shards} if same_place(version, other) else set()
        return cls(version, [shard for shard in version.manifest.shards if shard.path not in known])

    def column(self, name: str) -> pa.Array:
        parts = [self.version.rows(shard, [name])[name].combine_chunks() for shard in self.shards]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())

    def values(self, feature: Feature, rows: pa.Array) -> pa.Array:
        if not self.shards:
            return pa.array([], feature.arrow_type)
        return self.column(feature.name).cast(feature.arrow_type).take(rows)


def _feature_changes(before: DatasetVersion, after: DatasetVersion, examples: int) -> Changes:
    """Find the records of both versions that have other values of a feature that both have.

    An example has the first feature that differs.
    """
    old_features = {_without_points(feature) for feature in before.manifest.extra_features}
    both = [
        feature
        for feature in after.manifest.extra_features
        if _without_points(feature) in old_features and feature.name not in _NOT_COMPARED
    ]
    if not both:
        return Changes()
    both.sort(key=lambda feature: feature.name != MASK_SHA256)  # says best that a mask has changed
    old, new = _Side.of(before, after), _Side.of(after, before)
    places = pc.index_in(old.column("id"), new.column("id"))
    was, now = pc.indices_nonzero(pc.is_valid(places)), places.drop_null()
    first = np.full(len(was), len(both))
    for number, feature in enumerate(reversed(both)):
        differs = unequal(old.values(feature, was), new.values(feature, now))
        first[differs] = len(both) - 1 - number
    changed = np.flatnonzero(first < len(both))
    uris = new.column("source_uri").take(now.take(pa.array(changed)))

    def described(row: int) -> Change:
        feature, at = both[first[row]], now.slice(row, 1)
        uri, record_id = (new.column(name).take(at)[0].as_py() for name in ("source_uri", "id"))
        values = old.values(feature, was.slice(row, 1)), new.values(feature, at)
        one, other = (_in_words(value[0].as_py()) for value in values)
        return Change(uri, record_id, one, other, feature.name)

    shown = changed[pc.sort_indices(uris).to_numpy()[:examples]]
    return Changes(len(changed), tuple(described(row) for row in shown.tolist()))


def _without_points(feature: Feature) -> Feature:
    """Return a feature without the names of its key points: what is stored may be the same."""
    return feature.model_copy(update={"points": None})


def unequal(was: pa.Array, now: pa.Array) -> Bools:
    """Compare two columns of one type: bool [N], true where they differ. Nulls are equal, and so are NaNs."""
    if pa.types.is_list(was.type):
        lengths = [pc.fill_null(pc.list_value_length(column), -1).to_numpy() for column in (was, now)]
        found = np.asarray(lengths[0] != lengths[1])
        alike = pa.array(~found)
        rows = np.repeat(np.flatnonzero(~found), np.maximum(lengths[0][~found], 0))
        differs = unequal(was.filter(alike).flatten(), now.filter(alike).flatten())
        found[rows[differs]] = True
        return found
    nulls = np.asarray(pc.is_null(was).to_numpy(False) != pc.is_null(now).to_numpy(False))
    differs = np.asarray(pc.fill_null(pc.not_equal(was, now), False).to_numpy(False), np.bool_)
    if pa.types.is_floating(was.type):
        both_nan = pc.and_(pc.is_nan(was), pc.is_nan(now))
        differs &= ~np.asarray(pc.fill_null(both_nan, False).to_numpy(False), np.bool_)
    return nulls | differs


def _in_words(value: Any) -> str | None:
    """Return a value for people, of a long list the first ones."""
    if isinstance(value, list):
        more = [f"… {len(value)} values"] if len(value) > _VALUES_SHOWN else []
        return ", ".join([str(_in_words(one)) for one in value[:_VALUES_SHOWN]] + more) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return None if value is None else str(value)
