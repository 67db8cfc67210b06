"""Which work is the same work: the digests that finished blocks, plans and versions are found by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Self

import pyarrow as pa

from beam_jobs.config import PrepareConfig
from beam_jobs.plan import PLAN_SCHEMA, Plan
from beam_jobs.plan.records import PlannedRecords
from beam_jobs.sources.listing import Listing, batches_digest, table_digest
from infra.codecs import codec_builds
from infra.contract import FORMAT_VERSION, INPUTS_SCHEMA
from infra.digests import digest_of
from infra.records import Container

# Where in the spool an image lies changes nothing of what is written.
_SPOOL_COLUMNS = ("block", "offset_bytes")


@dataclass(frozen=True)
class Digests:
    """What a run is known by.

    Attributes:
        run: of the source's place, the configuration and the libraries: names the spool, so that a run on a
            source that has grown meanwhile finds the blocks that are still the same.
        source: of all that and the listing: equal where a run would publish the same again.
        builds: the libraries that shape the bytes, name -> version.
    """

    run: str
    source: str
    builds: dict[str, str]

    @classmethod
    def of(cls, source_uri: str, listing: Listing, config: PrepareConfig) -> Self:
        """The digests of a run."""
        run = run_digest(source_uri, config)
        return cls(run, digest_of([run, listing.digest()], length=32), _builds())


def run_digest(source_uri: str, config: PrepareConfig) -> str:
    """Digest of all that a run is known by before its source is listed."""
    return digest_of([FORMAT_VERSION, source_uri, config.effective(), _builds()])


def work_digest(source_uri: str, config: PrepareConfig) -> str:
    """Digest of what a run is about, whatever libraries it is made with."""
    return digest_of([FORMAT_VERSION, source_uri, config.effective()])


def _builds() -> dict[str, str]:
    return codec_builds() | {name: version(name) for name in ("isal", "pyarrow")}


def _records_digest(planned: PlannedRecords) -> str:
    names = [name for name in PLAN_SCHEMA.names if name not in _SPOOL_COLUMNS]
    schema = pa.schema([PLAN_SCHEMA.field(name) for name in names])
    return batches_digest(schema, (batch.select(names) for batch in planned.batches()))


def plan_digest(plan: Plan, digests: Digests, container: Container, inherited: Sequence[str] = ()) -> str:
    """Digest of everything that determines the bytes of shards, indexes and tables.

    Args:
        inherited: paths of the earlier version's shards that stay as they are.
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
