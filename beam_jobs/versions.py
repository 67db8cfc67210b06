"""The version that a job ends in: what is there already, and the publication of what is new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.config import RunnerConfig
from beam_jobs.container import ContainerChoice
from beam_jobs.digests import Digests
from beam_jobs.guard.verdicts import reasons_to_retry
from beam_jobs.input_parts import table_bytes, write_inputs
from beam_jobs.plan import Plan
from beam_jobs.request import JobRequest
from beam_jobs.sources.folder import PASSING_REASONS, SourceFault, SourceFolder
from beam_jobs.stages import inherited_shards
from infra.catalog import Catalog, DatasetVersion
from infra.contract import (
    Accounting,
    LabelConflict,
    Leaks,
    Manifest,
    Shard,
    SplitStatistics,
    TableFile,
    data_dir,
    is_inputs_file,
    summarise_splits,
)
from infra.digests import sha256_hex
from infra.errors import DataError, EnvironmentFault
from infra.progress import log, progress, stage
from infra.storage import Storage

INPUTS_FILE = "inputs.parquet"
NEAR_DUPLICATES_FILE = "near_duplicates.parquet"

_PASSING = pa.array(PASSING_REASONS)


@dataclass(frozen=True)
class Outline:
    """What is left of a plan once its rows are stored: small, however many files there are.

    Attributes:
        digest: of the plan; names the version's folder.
        choice: the container of the shards, and why.
        inherited: shards of the version before that stay as they are.
        accounting: of all inputs.
        reasons: reason -> number of quarantined inputs.
        inputs: the parts that hold the rows of all inputs.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None where they were not looked for.
        classes, label_conflicts, cross_split_duplicates, leaks, statistics: as in the plan.
    """

    digest: str
    choice: ContainerChoice
    inherited: list[Shard]
    accounting: Accounting
    reasons: dict[str, int]
    inputs: list[TableFile]
    near_duplicates: TableFile | None
    classes: list[str]
    label_conflicts: list[LabelConflict]
    cross_split_duplicates: int
    leaks: Leaks
    statistics: dict[str, SplitStatistics]


def store_plan(
    plan: Plan,
    dataset: Storage,
    digest: str,
    choice: ContainerChoice,
    counts: tuple[Accounting, dict[str, int]],
    before: DatasetVersion | None,
) -> Outline:
    """Write the tables of a plan, so that it can be let go of before its shards are written.

    Args:
        digest: of the plan. The spool names it already: what a killed run leaves is found by that.
        counts: accounting and reasons.
        before: the version that was planned on top of; its parts are inherited where they are equal.
    """
    near = plan.near_duplicates
    return Outline(
        digest=digest,
        choice=choice,
        inherited=inherited_shards(before, plan),
        accounting=counts[0],
        reasons=counts[1],
        inputs=write_inputs(dataset, data_dir(digest), plan.input_rows, before),
        near_duplicates=None
        if near is None
        else _write_table(dataset, f"{data_dir(digest)}/{NEAR_DUPLICATES_FILE}", near),
        classes=plan.classes,
        label_conflicts=plan.label_conflicts,
        cross_split_duplicates=plan.cross_split_duplicates,
        leaks=plan.leaks,
        statistics=plan.statistics,
    )


def unchanged_version(
    catalog: Catalog, dataset: str, digests: Digests, source: SourceFolder, limits: RunnerConfig
) -> DatasetVersion | None:
    """The newest version, if just this source and configuration made it and would make it again.

    All its files must still be there, what could not be read of the source must still be unreadable, and no
    image that took too much may take more now.
    """
    newest = catalog.latest(dataset)
    if newest is None or newest.manifest.source_digest != digests.source:
        return None
    if set(reasons_to_retry(newest.manifest.config, limits)) & set(newest.manifest.quarantine):
        return None
    return newest if not newest.missing_files() and _is_still_unreadable(newest, source) else None


def _is_still_unreadable(version: DatasetVersion, source: SourceFolder) -> bool:
    """Whether the files that could not be read when the version was made still cannot be."""
    if not set(PASSING_REASONS) & set(version.manifest.quarantine):
        return True
    inputs = version.inputs()
    lost = inputs.filter(pc.and_(pc.equal(inputs["stage"], "read"), pc.is_in(inputs["reason"], _PASSING)))
    for row in lost.to_pylist():
        try:
            source.read(row["uri"], row["size_bytes"], row["mtime_ns"])
        except SourceFault as fault:
            if fault.reason == row["reason"]:
                continue
        return False
    return True


def shards_of_plan(catalog: Catalog, dataset: str, plan_digest: str) -> Iterator[Shard]:
    """What this plan wrote for earlier versions: a source that is what it once was needs nothing new."""
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
    source_uri: str,
    outline: Outline,
    shards: list[Shard],
    digests: Digests,
    parent: DatasetVersion | None,
) -> DatasetVersion:
    """Sweep up, write the report, make the version visible, and clear away what earlier attempts at it left.

    Args:
        outline: of the version.
        shards: all of it, as they were written.
        parent: the version that it was planned on top of.

    Raises:
        PublishConflict: another writer took the number after the parent's.
    """
    from beam_jobs.report import write_report  # its template engine is needed here only

    stage("publish", unit="versions")
    storage = catalog.dataset_storage(request.dataset)
    storage.sweep(data_dir(outline.digest))
    manifest = Manifest(
        dataset=request.dataset,
        version=parent.version + 1 if parent else 1,
        parent=parent.version if parent else None,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        plan_digest=outline.digest,
        run_digest=digests.run,
        source=source_uri,
        source_digest=digests.source,
        classes=outline.classes,
        container=outline.choice.container,
        container_reason=outline.choice.reason,
        image_encoding=request.config.image.encoding,
        config=request.config.model_dump(mode="json"),
        codecs=digests.builds,
        shards=shards,
        inputs=outline.inputs,
        near_duplicates=outline.near_duplicates,
        accounting=outline.accounting,
        splits=summarise_splits(shards),
        quarantine=outline.reasons,
        label_conflicts=outline.label_conflicts,
        cross_split_duplicates=outline.cross_split_duplicates,
        leaks=outline.leaks,
        statistics=outline.statistics,
    )
    report = write_report(storage, manifest)
    version = catalog.publish(manifest.model_copy(update={"report": report}))
    try:
        _remove_unnamed_inputs(catalog, version)
    except (OSError, EnvironmentFault, DataError) as error:
        log(f"not everything that earlier attempts left could be removed: {error}", level="warning")
    progress("publish", 1, 1, unit="versions")
    return version


def _remove_unnamed_inputs(catalog: Catalog, version: DatasetVersion) -> None:
    """Remove the parts of inputs in the plan's folder that no version names.

    An attempt that lost a race, or was killed, may have written a part that the version planned upon next has
    too, and that is inherited from there. Nobody can be about to name what is left here: only who holds the
    claim to this run writes in the folder, others inherit only what a published version names, and as long as
    the claim is held no version is dropped.
    """
    folder = data_dir(version.manifest.plan_digest)
    entries = version.storage.list_files(folder, recursive=False)
    left = {entry.path for entry in entries if is_inputs_file(entry.path)} - set(version.manifest.files())
    for number in catalog.versions(version.name) if left else ():
        left -= set(catalog.open(f"{version.name}@{number}").manifest.files())
    for path in left:
        version.storage.delete(path)


def _write_table(storage: Storage, path: str, table: pa.Table) -> TableFile:
    data = table_bytes(table)
    storage.write_atomic(path, data)
    return TableFile(path=path, num_rows=table.num_rows, num_bytes=len(data), sha256=sha256_hex(data))
