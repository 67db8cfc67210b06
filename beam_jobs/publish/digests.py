"""Digests by which finished blocks, plans and versions are found again, and the check for a version again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig, RunnerConfig
from shardmill.beam_jobs.execution.verdicts import reasons_to_retry
from shardmill.beam_jobs.plan import AnyPlan, RecordRows
from shardmill.beam_jobs.reasons import PASSING_REASONS
from shardmill.beam_jobs.schemas import READ, file_refs
from shardmill.beam_jobs.sources.embeddings import EmbeddingFiles
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kind_modules import Reader, kind_module, own_kind
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.tables.ids import batches_digest, table_digest
from shardmill.infra.codecs import codec_builds
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import digest_of
from shardmill.infra.extras import version_of
from shardmill.infra.format.contract import FORMAT_VERSION, INPUTS_SCHEMA, REVISION
from shardmill.infra.format.records import Container
from shardmill.infra.plugins import versions_of

# The place that an image is copied from does not change the written bytes.
_PLACE_COLUMNS = ("block", "shard", "offset_bytes")


@dataclass(frozen=True)
class Digests:
    """The digests of a run.

    Attributes:
        run: covers the location of the source, the configuration and the libraries. It names the spool, so a
            run on a source that has grown finds the blocks that are still the same.
        source: covers all of that, the listing, its label edits, what people decided about contents, and
            the vectors of the images: equal if a run would publish the same again.
        builds: library -> version, of the libraries that shape the stored bytes.
    """

    run: str
    source: str
    builds: dict[str, str]

    @classmethod
    def of(
        cls,
        source_uri: str,
        listing: Listing,
        config: PrepareConfig,
        embeddings: EmbeddingFiles | None = None,
        decided: str | None = None,
    ) -> Self:
        """Compute the digests of a run; ``decided`` is the digest of what people decided about contents."""
        run = run_digest(source_uri, config)
        covered = [run, listing.digest(), *([embeddings.digest] if embeddings else [])]
        if listing.label_edits is not None:
            covered.append(listing.label_edits.sha256)
        if decided is not None:
            covered.append(decided)
        return cls(run, digest_of(covered, length=32), builds_of(config))


def run_digest(source_uri: str, config: PrepareConfig) -> str:
    """Return the digest of a run, which is known before its source is listed."""
    return digest_of([FORMAT_VERSION, source_uri, config.effective(), builds_of(config)])


def work_digest(source_uri: str, config: PrepareConfig) -> str:
    """Return the digest of source and configuration, without the libraries."""
    return digest_of([FORMAT_VERSION, source_uri, config.effective()])


def builds_of(config: PrepareConfig) -> dict[str, str]:
    """Return library -> version, of the libraries and the plugin that shape the stored bytes."""
    codecs = codec_builds(config.image.encoding)
    if config.source.label_kind == "mask":
        codecs |= codec_builds("png")
    libraries = {name: version(name) for name in ("isal", "pyarrow")}
    of_kind = getattr(kind_module(config), "DISTRIBUTIONS", ())
    libraries |= {name: version_of(name) or "absent" for name in of_kind}
    return {"shardmill": str(REVISION)} | codecs | libraries | versions_of([own_kind(config.source.kind)])


def _records_digest(planned: RecordRows) -> str:
    names = [name for name in planned.schema.names if name not in _PLACE_COLUMNS]
    schema = pa.schema([planned.schema.field(name) for name in names])
    return batches_digest(schema, (batch.select(names) for batch in planned.batches()))


def plan_digest(plan: AnyPlan, digests: Digests, container: Container, inherited: Sequence[str] = ()) -> str:
    """Return the digest of everything that determines the bytes of shards, indexes and tables.

    Args:
        plan: the plan.
        digests: digests of the run.
        container: container ("gzip" or "none") of the shards.
        inherited: paths of the previous version's shards that stay as they are.
    """
    return digest_of(
        [
            digests.run,
            container,
            batches_digest(INPUTS_SCHEMA, plan.input_rows.batches()),
            _records_digest(plan.planned),
            [[shard.split, shard.index, shard.count, shard.length] for shard in plan.shards],
            list(inherited),
            None if plan.near_duplicates is None else table_digest(plan.near_duplicates),
        ]
    )


_PASSING = pa.array(PASSING_REASONS)


def unchanged_version(
    newest: DatasetVersion | None, digests: Digests, listing: Listing, source: Reader, limits: RunnerConfig
) -> DatasetVersion | None:
    """Return the newest version, if this source and configuration made it and would make it again.

    All of its files must still be there, files that could not be read must still be unreadable, and the
    limits on time and memory must not have been raised for images that exceeded them.
    """
    if newest is None or newest.manifest.source_digest != digests.source:
        return None
    if set(reasons_to_retry(newest.manifest.config, limits)) & set(newest.manifest.quarantine):
        return None
    return newest if not newest.missing_files() and _is_still_unreadable(newest, listing, source) else None


def _is_still_unreadable(version: DatasetVersion, listing: Listing, source: Reader) -> bool:
    """Return whether the files that could not be read when the version was made still cannot be read.

    An image with a mask is lost if either cannot be read.
    """
    if not set(PASSING_REASONS) & set(version.manifest.quarantine):
        return True
    inputs = version.inputs()
    lost = inputs.filter(pc.and_(pc.equal(inputs["stage"], READ), pc.is_in(inputs["reason"], _PASSING)))
    reasons = dict(zip(lost["uri"].to_pylist(), lost["reason"].to_pylist(), strict=True))
    # The rows of the listing, since those of the version do not say which container holds an image.
    listed = listing.table.filter(pc.is_in(listing.table["uri"], lost["uri"].combine_chunks()))
    for file in file_refs(listed):
        try:
            source.read(file)
            if file.mask is not None:
                source.read(file.mask)
        except SourceFault as fault:
            if fault.reason == reasons[file.uri]:
                continue
        return False
    return True
