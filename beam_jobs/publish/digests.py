"""Digests by which finished blocks, plans and versions are found again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Self

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.plan import AnyPlan, RecordRows
from shardmill.beam_jobs.sources.embeddings import EmbeddingFiles
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.tables.ids import batches_digest, table_digest
from shardmill.infra.codecs import codec_builds
from shardmill.infra.digests import digest_of
from shardmill.infra.format.contract import FORMAT_VERSION, INPUTS_SCHEMA, REVISION
from shardmill.infra.format.records import Container

# The place that an image is copied from does not change the written bytes.
_PLACE_COLUMNS = ("block", "shard", "offset_bytes")


@dataclass(frozen=True)
class Digests:
    """The digests of a run.

    Attributes:
        run: covers the location of the source, the configuration and the libraries. It names the spool, so a
            run on a source that has grown finds the blocks that are still the same.
        source: covers all of that, the listing, its label edits and the vectors of the images: equal if a
            run would publish the same again.
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
    ) -> Self:
        """Compute the digests of a run."""
        run = run_digest(source_uri, config)
        covered = [run, listing.digest(), *([embeddings.digest] if embeddings else [])]
        if listing.label_edits is not None:
            covered.append(listing.label_edits.sha256)
        return cls(run, digest_of(covered, length=32), builds_of(config))


def run_digest(source_uri: str, config: PrepareConfig) -> str:
    """Return the digest of a run, which is known before its source is listed."""
    return digest_of([FORMAT_VERSION, source_uri, config.effective(), builds_of(config)])


def work_digest(source_uri: str, config: PrepareConfig) -> str:
    """Return the digest of source and configuration, without the libraries."""
    return digest_of([FORMAT_VERSION, source_uri, config.effective()])


def builds_of(config: PrepareConfig) -> dict[str, str]:
    """Return library -> version, of the libraries that shape the stored bytes."""
    codecs = codec_builds(config.image.encoding)
    if config.source.label_kind == "mask":
        codecs |= codec_builds("png")
    return {"shardmill": str(REVISION)} | codecs | {name: version(name) for name in ("isal", "pyarrow")}


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
