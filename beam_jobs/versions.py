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
from infra.catalog import Catalog, DatasetVersion
from infra.contract import Accounting, Manifest, Shard, TableFile, data_dir, summarise_splits
from infra.digests import sha256_hex
from infra.progress import progress, stage
from infra.storage import Storage

INPUTS_FILE = "inputs.parquet"
NEAR_DUPLICATES_FILE = "near_duplicates.parquet"

_PASSING = pa.array(PASSING_REASONS)


@dataclass(frozen=True)
class FinishedWork:
    """Everything of a version but its publication.

    Attributes:
        plan: what it holds.
        plan_digest: names its folder.
        choice: the container of the shards, and why.
        shards: as they were written.
        accounting: of all inputs.
        reasons: reason -> number of quarantined inputs.
    """

    plan: Plan
    plan_digest: str
    choice: ContainerChoice
    shards: list[Shard]
    accounting: Accounting
    reasons: dict[str, int]


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
    work: FinishedWork,
    digests: Digests,
    parent: DatasetVersion | None,
) -> DatasetVersion:
    """Write the rows of all inputs and the report, sweep up, and make the version visible.

    Args:
        parent: the version that the work was planned on top of.

    Raises:
        PublishConflict: another writer took the number after the parent's.
    """
    from beam_jobs.report import write_report  # its template engine is needed here only

    stage("publish", unit="versions")
    storage = catalog.dataset_storage(request.dataset)
    folder = data_dir(work.plan_digest)
    storage.sweep(folder)
    near = work.plan.near_duplicates
    manifest = Manifest(
        dataset=request.dataset,
        version=parent.version + 1 if parent else 1,
        parent=parent.version if parent else None,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        plan_digest=work.plan_digest,
        run_digest=digests.run,
        source=source_uri,
        source_digest=digests.source,
        classes=work.plan.classes,
        container=work.choice.container,
        container_reason=work.choice.reason,
        image_encoding=request.config.image.encoding,
        config=request.config.model_dump(mode="json"),
        codecs=digests.builds,
        shards=work.shards,
        inputs=write_inputs(storage, folder, work.plan.input_rows, parent),
        near_duplicates=None if near is None else _write_table(storage, work, NEAR_DUPLICATES_FILE, near),
        accounting=work.accounting,
        splits=summarise_splits(work.shards),
        quarantine=work.reasons,
        label_conflicts=work.plan.label_conflicts,
        cross_split_duplicates=work.plan.cross_split_duplicates,
        leaks=work.plan.leaks,
        statistics=work.plan.statistics,
    )
    report = write_report(storage, manifest, work.plan.inputs)
    version = catalog.publish(manifest.model_copy(update={"report": report}))
    progress("publish", 1, 1, unit="versions")
    return version


def _write_table(storage: Storage, work: FinishedWork, name: str, table: pa.Table) -> TableFile:
    path = f"{data_dir(work.plan_digest)}/{name}"
    data = table_bytes(table)
    storage.write_atomic(path, data)
    return TableFile(path=path, num_rows=table.num_rows, num_bytes=len(data), sha256=sha256_hex(data))
