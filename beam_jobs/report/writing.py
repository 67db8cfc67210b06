"""Writing of the report: from a version's files to its page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pydantic import ValidationError

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.report.figures.changes import ChangesSince, changes_since, drift_since
from shardmill.beam_jobs.report.figures.groups import (
    DividedKey,
    NearDuplicateGroups,
    divided_keys,
    near_duplicates,
)
from shardmill.beam_jobs.report.figures.inputs import InputFigures, StoredInputs, count_inputs
from shardmill.beam_jobs.report.figures.quality import quality_figures, record_ids
from shardmill.beam_jobs.report.figures.survey import survey_indexes
from shardmill.beam_jobs.report.gallery import exhibit, exhibit_inputs
from shardmill.beam_jobs.report.sections import SECTIONS, Contents, template
from shardmill.beam_jobs.report.thumbnails import Thumbnail, choose_and_read, read_thumbnails
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources import open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kind_modules import Reader
from shardmill.infra.dataset.catalog import load_version
from shardmill.infra.dataset.drift.figures import Drift
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, CorruptDataError, StorageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.layout import data_dir, manifest_file
from shardmill.infra.html.page import style_hash, style_sheet
from shardmill.infra.settings import STORED
from shardmill.infra.storage.filesystem import Storage

PAGE_AT_MOST_BYTES = 8 << 20


def write_report(
    storage: Storage,
    manifest: Manifest,
    inputs: pa.Table | None = None,
    drift: Drift | None = None,
    source: SourceFolder | None = None,
) -> str:
    """Write the report of a version that is published, or about to be.

    Args:
        storage: the dataset's folder; all that the manifest names is in it.
        manifest: manifest of the version.
        inputs: the rows of all inputs (INPUTS_SCHEMA); None to read the parts that the manifest names.
        drift: how the version differs from the previous one; None to compare them.
        source: the source of the version; None to open the place that the manifest names.

    Returns:
        The path of the page relative to the dataset.

    Raises:
        CorruptDataError: a record that the page shows cannot be read from its shard.
    """
    path = report_path(storage, manifest)
    page = make_report(storage, manifest, inputs, drift, source)
    storage.write_atomic(path, page.encode("utf-8"))
    return path


def report_path(storage: Storage, manifest: Manifest) -> str:
    """Return the path of a version's report: usually ``data/<plan digest>/report.html``.

    A version may share its plan, and so the folder, with an earlier one, if the source is again the same. The
    earlier report keeps its path; the later one has the number of its version in its name.
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
            yield load_version(storage, manifest.dataset, version).manifest.report


def make_report(
    storage: Storage,
    manifest: Manifest,
    inputs: pa.Table | None = None,
    drift: Drift | None = None,
    source: SourceFolder | None = None,
) -> str:
    """Make the page from the files of the version, the source and the previous version.

    The source serves for pictures of refused files only.

    Args:
        storage: the dataset's folder.
        manifest: manifest of the version.
        inputs: the rows of all inputs (INPUTS_SCHEMA); None to read the parts that the manifest names.
        drift: how the version differs from the previous one; None to compare them.
        source: the source of the version; None to open the place that the manifest names.

    Returns:
        The page as HTML.

    Raises:
        CorruptDataError: a record that the page shows cannot be read from its shard.
    """
    near = near_duplicates(storage, manifest)
    keys = divided_keys(storage, manifest)
    since = changes_since(storage, manifest)
    if drift is None and since is not None:
        drift = drift_since(since.before, DatasetVersion(storage, manifest))
    tables = StoredInputs(storage, manifest) if inputs is None else [inputs]
    dropped = {member.uri for member in near.members() if member.split is None}
    rows = count_inputs(tables, manifest, wanted_uris=dropped)
    quality = quality_figures(DatasetVersion(storage, manifest))
    named = list(dict.fromkeys([*_named(manifest, rows, near, keys, since), *record_ids(quality)]))
    survey = survey_indexes(storage, manifest, named)
    refused = _RefusedImages(manifest, source)
    return _render(
        Contents(
            storage,
            manifest,
            rows,
            survey,
            near,
            keys,
            quality,
            since,
            drift,
            pictures=choose_and_read(storage, manifest, survey, named),
            gallery=exhibit(refused, rows.quarantined),
            dropped=exhibit_inputs(refused, rows.wanted),
            removed=_removed(storage, since),
        )
    )


def _render(contents: Contents) -> str:
    """Return the page as HTML."""
    manifest = contents.manifest
    shared = {
        "manifest": manifest,
        "outcomes": manifest.accounting.outcomes,
        "thumbnails": contents.pictures.by_id,
        "dropped": contents.dropped,
        "stored_bytes": sum(shard.num_bytes for shard in manifest.shards),
    }
    rendered = [(section, section.render(contents, shared)) for section in SECTIONS]
    shown = [(section, html) for section, html in rendered if html is not None]
    style = style_sheet()
    return template("page").render(**shared, style=style, style_hash=style_hash(style), sections=shown)


class _RefusedImages:
    """Reads images of the source, which is opened for the first of them.

    If the storage of the source cannot be read, no other image is tried: each attempt may take long. The
    manifest names no credentials, so this is the rule for a source in a store that needs some.
    """

    def __init__(self, manifest: Manifest, source: SourceFolder | None) -> None:
        self._manifest = manifest
        self._source = source
        self._reader: Reader | None = None
        self._failure: StorageError | None = None

    def read(self, file: FileRef) -> bytes:
        """Read a whole image; see ``Reader``."""
        if self._failure is not None:
            raise self._failure
        try:
            if self._reader is None:
                self._reader = _reader(self._manifest, self._source)
            return self._reader.read(file)
        except StorageError as error:
            self._failure = error
            raise


def _reader(manifest: Manifest, source: SourceFolder | None) -> Reader:
    """The reader of the version's source; of plain files if its kind of source is not known here."""
    folder = source or SourceFolder(manifest.source)
    try:
        config = PrepareConfig.model_validate({"source": manifest.config.get("source", {})}, context=STORED)
        return open_reader(folder, config)
    except (ValidationError, ConfigError):
        return folder


def _named(
    manifest: Manifest,
    rows: InputFigures,
    near: NearDuplicateGroups,
    keys: Iterable[DividedKey],
    since: ChangesSince | None,
) -> Iterator[str]:
    """Yield the ids of the records that the page names, the most important pictures first."""
    yield from (member.record_id for group in near.leaks for member in group.members)
    yield from (record_id for key in keys for ids in key.record_ids.values() for record_id in ids)
    yield from sorted(rows.duplicates.record_ids(manifest.label_conflicts))
    yield from sorted(since.record_ids()) if since else ()
    yield from (member.record_id for group in near.groups for member in group.members)


def _removed(storage: Storage, since: ChangesSince | None) -> dict[str, Thumbnail]:
    """Read pictures of records that only the previous version has; none if it can no longer be read."""
    if since is None or since.before is None:
        return {}
    candidates = [since.removed[record_id] for record_id in sorted(since.removed)]
    try:
        return read_thumbnails(storage, since.before.manifest, candidates)
    except CorruptDataError:  # in the previous version, which must not hinder the report of this one
        return {}
