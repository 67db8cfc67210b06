"""From a version's files to its page, and the place where the page lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from beam_jobs.report.changes import Since, changes_since
from beam_jobs.report.gallery import exhibit, exhibit_inputs
from beam_jobs.report.keys import DividedKey, divided_keys
from beam_jobs.report.near import NearDuplicates, near_duplicates
from beam_jobs.report.page import Contents, render_page
from beam_jobs.report.pictures import Thumbnail, choose_and_read, read_thumbnails
from beam_jobs.report.rows import InputRows, StoredInputs, count_inputs
from beam_jobs.report.survey import survey_indexes
from infra.contract import Manifest, data_dir, manifest_file
from infra.errors import CorruptDataError
from infra.storage import Storage

PAGE_AT_MOST_BYTES = 8 << 20


def write_report(storage: Storage, manifest: Manifest, inputs: pa.Table | None = None) -> str:
    """Write the report of a version that is published, or about to be.

    Args:
        storage: the dataset's folder; all that the manifest names is in it.
        manifest: of the version.
        inputs: its ``INPUTS_SCHEMA``, where it is at hand; else it is read from the parts that the manifest
            names.

    Returns:
        The path of the page relative to the dataset.

    Raises:
        CorruptDataError: a record that the page shows cannot be read from its shard.
    """
    path = report_path(storage, manifest)
    storage.write_atomic(path, make_report(storage, manifest, inputs).encode("utf-8"))
    return path


def report_path(storage: Storage, manifest: Manifest) -> str:
    """Where the report of a version lies: ``data/<plan digest>/report.html``, as a rule.

    A source that is again what it once was has the plan, and so the folder, of an earlier version, whose
    report stays: the later one has the number of its version in its name.
    """
    if manifest.report is not None:
        return manifest.report
    path = f"{data_dir(manifest.plan_digest)}/report.html"
    if storage.exists(path) and path in _reports_before(storage, manifest):
        return f"{data_dir(manifest.plan_digest)}/report-{manifest.version:06d}.html"
    return path


def _reports_before(storage: Storage, manifest: Manifest) -> Iterator[str | None]:
    for version in range(manifest.version - 1, 0, -1):
        if storage.exists(manifest_file(version)):
            yield Manifest.from_json(storage.read_bytes(manifest_file(version))).report


def make_report(storage: Storage, manifest: Manifest, inputs: pa.Table | None = None) -> str:
    """The page, from what the manifest names, the source (pictures of what was refused) and the version
    before.

    Raises:
        CorruptDataError: a record that the page shows cannot be read from its shard.
    """
    near = near_duplicates(storage, manifest)
    keys = divided_keys(storage, manifest)
    since = changes_since(storage, manifest)
    tables = StoredInputs(storage, manifest) if inputs is None else [inputs]
    dropped = {member.uri for member in near.members() if member.split is None}
    rows = count_inputs(tables, manifest, wanted_uris=dropped)
    named = list(dict.fromkeys(_named(manifest, rows, near, keys, since)))
    survey = survey_indexes(storage, manifest, named)
    return render_page(
        Contents(
            manifest=manifest,
            inputs=rows,
            survey=survey,
            near=near,
            keys=keys,
            since=since,
            pictures=choose_and_read(storage, manifest, survey, named),
            gallery=exhibit(manifest.source, rows.quarantined),
            dropped=exhibit_inputs(manifest.source, rows.wanted),
            removed=_removed(storage, since),
        )
    )


def _named(
    manifest: Manifest,
    rows: InputRows,
    near: NearDuplicates,
    keys: Iterable[DividedKey],
    since: Since | None,
) -> Iterator[str]:
    """Ids of the records that the page names, the most wanted pictures first."""
    yield from (member.record_id for group in near.leaks for member in group.members)
    yield from (record_id for key in keys for ids in key.record_ids.values() for record_id in ids)
    yield from sorted(rows.duplicates.record_ids(manifest.label_conflicts))
    yield from sorted(since.record_ids()) if since else ()
    yield from (member.record_id for group in near.groups for member in group.members)


def _removed(storage: Storage, since: Since | None) -> dict[str, Thumbnail]:
    """Pictures of records that only the version before has; none where it can no longer be read."""
    if since is None or since.before is None:
        return {}
    candidates = [since.removed[record_id] for record_id in sorted(since.removed)]
    try:
        return read_thumbnails(storage, since.before.manifest, candidates)
    except CorruptDataError:  # of the version before: no reason not to show this one
        return {}
