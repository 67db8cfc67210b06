"""Changes and drift since the previous version, and the records whose pictures show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from shardmill.beam_jobs.config.planning import DriftConfig
from shardmill.beam_jobs.report.figures.survey import Candidate, find_records
from shardmill.infra.dataset.catalog import load_version
from shardmill.infra.dataset.compare import Changes, VersionDiff, diff
from shardmill.infra.dataset.drift.figures import Drift
from shardmill.infra.dataset.drift.measuring import measure
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, FormatVersionError, NotFoundError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.storage.filesystem import Storage

EXAMPLES_SHOWN = 12
_GONE = (NotFoundError, CorruptDataError, FormatVersionError)


@dataclass(frozen=True, slots=True)
class ChangesSince:
    """The difference to the previous version.

    Attributes:
        before: the previous version; None if it cannot be read.
        difference: None if the previous version cannot be read.
        missing: why the previous version cannot be read, or "".
        removed: record id -> place of a removed record in the previous version; empty if its shard is gone.
    """

    before: DatasetVersion | None
    difference: VersionDiff | None = None
    missing: str = ""
    removed: Mapping[str, Candidate] = field(default_factory=dict)

    def shown(self) -> dict[str, Changes]:
        """Return kind of change -> examples, of the kinds that pictures of this version show."""
        if self.difference is None:
            return {}
        found = self.difference
        return {
            "added": found.records_added,
            "relabelled": found.relabelled,
            "features": found.features_changed,
            "moved": found.moved,
        }

    def record_ids(self) -> set[str]:
        """Return the ids of the records of this version that the page shows as changes."""
        return {
            change.record_id
            for changes in self.shown().values()
            for change in changes.examples
            if change.record_id is not None
        }


def changes_since(storage: Storage, manifest: Manifest) -> ChangesSince | None:
    """Compare a version with its previous version; None if it has none."""
    if manifest.parent is None:
        return None
    try:
        before = load_version(storage, manifest.dataset, manifest.parent)
        difference = diff(before, DatasetVersion(storage, manifest), EXAMPLES_SHOWN)
    except _GONE as error:
        return ChangesSince(None, missing=error.message)
    kept = {shard.path for shard in manifest.shards}
    ids = {change.record_id for change in difference.records_removed.examples if change.record_id}
    try:
        removed = find_records(storage, before.manifest, ids, without=kept) if ids else {}
    except _GONE:  # shown without pictures
        removed = {}
    return ChangesSince(before, difference, removed=removed)


FIGURES_SHOWN = 12


def drift_since(before: DatasetVersion | None, after: DatasetVersion) -> Drift | None:
    """Compare a version with the one before it, with the limits of its configuration.

    Returns:
        None if the versions were not to be compared, or cannot be.
    """
    if before is None:
        return None
    try:
        config = DriftConfig.model_validate(after.manifest.config.get("drift", {}))
        return None if config.action == "off" else measure(before, after, config)
    except (ValidationError, CorruptDataError):
        return None
