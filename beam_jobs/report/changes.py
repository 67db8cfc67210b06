"""What changed since the version before, with the records whose pictures show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from beam_jobs.report.survey import Candidate, find_records
from infra.catalog import DatasetVersion
from infra.compare import Changes, VersionDiff, diff
from infra.contract import Manifest, manifest_file
from infra.errors import CorruptDataError, FormatVersionError, NotFoundError
from infra.storage import Storage

EXAMPLES_SHOWN = 12
_GONE = (NotFoundError, CorruptDataError, FormatVersionError)


@dataclass(frozen=True, slots=True)
class Since:
    """The difference to the version before, and where the removed records lay in it.

    Attributes:
        difference: None where that version is no longer there, as ``missing`` says.
        removed: record id -> where it lay; empty where its shard is gone.
    """

    before: DatasetVersion | None
    difference: VersionDiff | None = None
    missing: str = ""
    removed: Mapping[str, Candidate] = field(default_factory=dict)

    def shown(self) -> dict[str, Changes]:
        """Kind of change -> its examples, of the kinds that are shown as pictures of this version."""
        if self.difference is None:
            return {}
        found = self.difference
        return {"added": found.records_added, "relabelled": found.relabelled, "moved": found.moved}

    def record_ids(self) -> set[str]:
        """Ids of the records of this version that the page shows."""
        return {
            change.record_id
            for changes in self.shown().values()
            for change in changes.examples
            if change.record_id is not None
        }


def changes_since(storage: Storage, manifest: Manifest) -> Since | None:
    """What changed since the manifest's parent; None where it has none."""
    if manifest.parent is None:
        return None
    try:
        path = manifest_file(manifest.parent)
        before = DatasetVersion(storage, Manifest.from_json(storage.read_bytes(path), path))
        difference = diff(before, DatasetVersion(storage, manifest), EXAMPLES_SHOWN)
    except _GONE as error:
        return Since(None, missing=error.message)
    kept = {shard.path for shard in manifest.shards}
    ids = {change.record_id for change in difference.records_removed.examples if change.record_id}
    try:
        removed = find_records(storage, before.manifest, ids, without=kept) if ids else {}
    except _GONE:  # shown without pictures
        removed = {}
    return Since(before, difference, removed=removed)
