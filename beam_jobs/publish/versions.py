"""Publish a version: its report, manifest and warnings, and the removal of files of earlier attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.config.planning import DriftConfig
from shardmill.beam_jobs.plan import num_shards
from shardmill.beam_jobs.publish.digests import Digests
from shardmill.beam_jobs.publish.outline import Outline
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.reuse.previous import config_of
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.drift.figures import Drift, DriftFigure
from shardmill.infra.dataset.drift.measuring import measure
from shardmill.infra.dataset.maintenance.removed import files_of_removed
from shardmill.infra.dataset.publishing import with_report
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError, DriftExceeded, EnvironmentFault
from shardmill.infra.format.contract import (
    LabelEditsSummary,
    Manifest,
    Shard,
    described_features,
    format_version_of,
    summarise_splits,
)
from shardmill.infra.format.known_features import mask_format
from shardmill.infra.format.layout import data_dir, is_inputs_file
from shardmill.infra.progress import log, progress, stage
from shardmill.infra.storage.objects.hub import without_revision

INPUTS_FILE = "inputs.parquet"


def shards_of_plan(catalog: Catalog, dataset: str, plan_digest: str) -> Iterator[Shard]:
    """Yield the shards that the same plan wrote for earlier versions, when the source was the same."""
    folder = data_dir(plan_digest)
    if not catalog.dataset_storage(dataset).exists(folder):
        return
    for version in catalog.versions(dataset):
        for shard in catalog.open(f"{dataset}@{version}").manifest.shards:
            if shard.path.startswith(f"{folder}/"):
                yield shard


def publish(
    catalog: Catalog,
    request: JobRequest,
    source: SourceFolder,
    outline: Outline,
    shards: list[Shard],
    digests: Digests,
    previous: DatasetVersion | None,
    label_edits: LabelEditsSummary | None,
) -> tuple[DatasetVersion, Drift | None]:
    """Publish a version whose files are written, and remove the files that earlier attempts at it left.

    Args:
        catalog: the datasets.
        request: request of the run.
        source: folder of the source of this run.
        outline: the plan of the version.
        shards: all shards of the version.
        digests: digests of the run.
        previous: the version that it was planned on top of.
        label_edits: summary of the label edits of the listing and of the decisions of reviews.

    Returns:
        The version, and how it differs from the previous one.

    Raises:
        DriftExceeded: it differs more than the settings allow.
        PublishConflict: another writer took the number after the previous version's.
    """
    summary, samples = outline.summary, outline.samples
    manifest = Manifest(
        dataset=request.dataset,
        version=(previous.version if previous else catalog.last_removed(request.dataset)) + 1,
        parent=previous.version if previous else None,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        plan_digest=outline.digest,
        run_digest=digests.run,
        source=source.uri_as_read,
        source_digest=digests.source,
        classes=summary.classes,
        container=outline.choice.container,
        container_reason=outline.choice.reason,
        image_encoding=samples.stored_as(request.config.image.encoding),
        dtype=None if samples.is_common else samples.dtype,
        channels=None if samples.is_common else samples.channels,
        config=request.config.model_dump(mode="json", exclude={"signing_key"}),
        codecs=digests.builds,
        shards=shards,
        inputs=outline.inputs,
        near_duplicates=outline.near_duplicates,
        accounting=outline.counts.accounting,
        splits=summarise_splits(shards),
        quarantine=outline.counts.reasons,
        label_edits=label_edits,
        label_conflicts=summary.label_conflicts,
        cross_split_duplicates=summary.cross_split_duplicates,
        leaks=summary.leaks,
        statistics=summary.statistics,
        quality=summary.quality,
        label_kind=summary.label_kind,
        mask=mask_format(len(summary.classes)) if summary.label_kind == "mask" else None,
        format_version=format_version_of(summary.label_kind),
        features=described_features(summary.label_kind, samples.channels),
        extra_features=summary.features,
    )
    storage = catalog.dataset_storage(request.dataset)
    drift = _check_drift(previous, DatasetVersion(storage, manifest), request.config.drift)
    version = publish_manifest(catalog, manifest, drift, source)
    try:
        _remove_unnamed_inputs(catalog, version)
    except (OSError, EnvironmentFault, DataError) as error:
        log(f"not everything that earlier attempts left could be removed: {error}", level="warning")
    return version, drift


def publish_manifest(
    catalog: Catalog, manifest: Manifest, drift: Drift | None = None, source: SourceFolder | None = None
) -> DatasetVersion:
    """Write the report of a version whose files are complete, and make the version visible.

    Args:
        catalog: the datasets.
        manifest: manifest of the version.
        drift: how it differs from the previous one; None to compare them for the report.
        source: whose refused images the report shows; None to open the place that the manifest names.

    Raises:
        PublishConflict: another writer took the version's number.
    """
    from shardmill.beam_jobs.report import write_report  # its template engine is needed here only

    stage("publish", unit="versions")
    storage = catalog.dataset_storage(manifest.dataset)
    storage.sweep(data_dir(manifest.plan_digest))  # temporary files of workers that died
    _restore_report(catalog, manifest.dataset, manifest.parent)
    report = write_report(storage, manifest, drift=drift, source=source)
    version = catalog.publish(with_report(storage, manifest, report))
    progress("publish", 1, 1, unit="versions")
    return version


def _restore_report(catalog: Catalog, dataset: str, number: int | None) -> None:
    """Write the report of a version again if the file is missing."""
    from shardmill.beam_jobs.report import write_report

    if number is None:
        return
    storage = catalog.dataset_storage(dataset)
    try:
        manifest = catalog.open(f"{dataset}@{number}").manifest
        if manifest.report is not None and not storage.exists(manifest.report):
            write_report(storage, manifest)
    except (EnvironmentFault, DataError) as error:
        log(f"the missing report of {dataset}@{number} cannot be written again: {error}", level="warning")


def _remove_unnamed_inputs(catalog: Catalog, version: DatasetVersion) -> None:
    """Remove the parts of inputs in the plan's folder that no version names.

    An attempt that lost a race, or was killed, may have written parts that this version inherits from another
    folder. Nobody else can be about to name them: only the holder of the claim to this run writes in the
    folder, other runs inherit only what a published version names, and no version is dropped while the claim
    is held.
    """
    folder = data_dir(version.manifest.plan_digest)
    entries = version.storage.list_files(folder, recursive=False)
    left = {entry.path for entry in entries if is_inputs_file(entry.path)} - set(version.manifest.files())
    if left:
        left -= files_of_removed(version.storage)
    for number in catalog.versions(version.name) if left else ():
        left -= set(catalog.open(f"{version.name}@{number}").manifest.files())
    for path in left:
        version.storage.delete(path)


_SHOWN = 6


def _check_drift(before: DatasetVersion | None, after: DatasetVersion, config: DriftConfig) -> Drift | None:
    """Compare a version with the one before it, and warn of figures beyond their limits.

    Args:
        before: the version that it was planned on top of; None if it is the first.
        after: the version, whose shards and inputs are written.
        config: the limits, and the action beyond them.

    Returns:
        The figures; None if there is nothing to compare, or the version before cannot be read.

    Raises:
        DriftExceeded: a figure is beyond its limit, and ``drift.action`` is "stop".
    """
    if before is None or config.action == "off":
        return None
    try:
        drift = measure(before, after, config)
    except (DataError, EnvironmentFault) as error:
        log(f"{after.ref} is not compared with {before.ref}: {error.message}", level="warning")
        return None
    if drift.exceeded and config.action == "stop":
        raise DriftExceeded(
            f"{drift.after} would differ from {drift.before} more than [prepare.drift] allows: "
            f"{'; '.join(_sentences(drift.exceeded))}; nothing was published",
            f"look at the new images; if they are as they should be, publish them with --set "
            f"drift.action=warn, or raise {_settings(drift.exceeded)}: no image is encoded again",
        )
    for text in _sentences(drift.exceeded):
        log(f"drift since {drift.before}: {text}", level="warning")
    return drift


def _sentences(figures: Sequence[DriftFigure]) -> list[str]:
    shown = [str(figure) for figure in figures[:_SHOWN]]
    return shown + ([f"and {len(figures) - _SHOWN} more figures"] if len(figures) > _SHOWN else [])


def _settings(figures: Sequence[DriftFigure]) -> str:
    """Return the names of the limits that these figures exceed."""
    names = {f"drift.{figure.group}" for figure in figures}
    if any(figure.scope == "all" for figure in figures):
        names.add("drift.whole")
    return " and ".join(sorted(names))


_MANY_SHARDS = 6


def warn_about(manifest: Manifest) -> None:
    """Warn of crowded shards, of splits without an example, and of classes that train lacks."""
    # The report's template engine is loaded by now.
    from shardmill.beam_jobs.report.findings import empty_splits, untrained_classes

    if crowding := crowded_shards(manifest):
        log(crowding, level="warning")
    for finding in (*empty_splits(manifest), *untrained_classes(manifest)):
        log(f"{finding.text} {finding.remedy}", level="warning")


def without_label_edits(before: Manifest | None, source_uri: str, config: PrepareConfig) -> str | None:
    """Return a warning if the version before has label edits and this run none; None otherwise.

    Args:
        before: the manifest of the newest version.
        source_uri: place of the source of this run, as manifests name it.
        config: settings of this run.
    """
    if before is None or before.label_edits is None or without_revision(before.source) != source_uri:
        return None
    file = before.config.get("source", {}).get("label_edits")
    if config.source.label_edits is not None or file is None:  # decisions of a review stay by themselves
        return None
    return (
        f"{before.dataset}@{before.version} has label edits, and this run has none: its labels become those "
        f"of the source again. To keep them: --set source.label_edits={file}"
    )


def crowded_shards(manifest: Manifest) -> str | None:
    """Return a warning about a version with far more shards than it needs; None for others."""
    config = config_of(manifest)
    if config is None:
        return None
    for name, split in manifest.splits.items():
        needed = num_shards(split.num_examples, split.num_bytes, config.shards)
        if split.num_shards >= 2 * needed + _MANY_SHARDS:
            return (
                f"{manifest.dataset}@{manifest.version} keeps {name} in {split.num_shards:,} shards where "
                f"{needed:,} would do: `shardmill compact {manifest.dataset}` writes them anew, balanced"
            )
    return None
