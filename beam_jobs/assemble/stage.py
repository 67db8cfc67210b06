"""The assemble stage: which shards are finished already, and the Beam job that writes the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.assemble.shard_task import AssembleShards, finished_shards, reuse_shards, write_plan
from shardmill.beam_jobs.assemble.shards_to_write import ShardsToCopyFrom, ShardsToWrite
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.execution.progress import report_progress
from shardmill.beam_jobs.execution.runners import run_task
from shardmill.beam_jobs.plan import PlannedShard
from shardmill.beam_jobs.plan.shards import Assembly
from shardmill.beam_jobs.reuse.previous import PreviousVersion
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.beam_jobs.tables.ids import digest_bytes, record_ids
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import SPLITS, Shard
from shardmill.infra.format.known_features import MASK_BYTES
from shardmill.infra.format.records import Container
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage


@dataclass(frozen=True)
class Copying:
    """Places that records are copied from and to.

    Attributes:
        dataset: its folder.
        spool: folder of unfinished work of the run.
        plan_digest: names the folder of the new shards.
        block_digests: digest of the blocks in the spool, by number.
        previous: the version whose stored records are copied.
    """

    dataset: Storage
    spool: Storage
    plan_digest: str
    block_digests: Sequence[str]
    previous: DatasetVersion | None


@dataclass(frozen=True)
class Layout:
    """The shards to assemble. Their records, which may be many, are in the spool.

    Attributes:
        shards: ranges of the records, train first.
        classes: names by label.
        published: shards that the same plan wrote for earlier versions.
    """

    shards: Sequence[PlannedShard]
    classes: Sequence[str]
    published: Sequence[Shard]


@dataclass(frozen=True)
class AssembledShards:
    """All shards of a plan, complete.

    Attributes:
        shards: by number.
        num_reused: how many were found finished.
        cpu_seconds: processor time of the pool.
    """

    shards: list[Shard]
    num_reused: int
    cpu_seconds: float


def lay_out(
    plan: Assembly, copying: Copying, previous: PreviousVersion | None, published: Iterable[Shard] = ()
) -> Layout:
    """Write the records of a plan to the spool, where each worker reads the records of its shards.

    Args:
        plan: the shards and their records.
        copying: where records are copied from and to.
        previous: the version that stored records are copied from.
        published: shards that the same plan wrote for earlier versions.
    """
    write_plan(copying.spool, copying.plan_digest, plan, partial(_lengths, previous=previous))
    return Layout(list(plan.shards), list(plan.classes), list(published))


def assemble_shards(
    layout: Layout,
    copying: Copying,
    container: Container,
    config: PrepareConfig,
) -> AssembledShards:
    """Write the planned shards that are not finished."""
    previous_shards = ShardsToCopyFrom()
    if copying.previous is not None:
        manifest = copying.previous.manifest
        previous_shards = ShardsToCopyFrom([shard.path for shard in manifest.shards], manifest.container)
    job = ShardsToWrite(
        copying.spool,
        copying.dataset,
        copying.plan_digest,
        layout.shards,
        copying.block_digests,
        layout.classes,
        config.image.channels,
        container,
        previous_shards,
    )
    reused = reuse_shards(job, layout.published)
    todo = [number for number in range(len(layout.shards)) if number not in reused]
    if reused:
        log(f"continuing from {len(reused):,} of {len(layout.shards):,} finished shards")

    def count_done() -> int:
        return sum(shard.num_examples for shard in finished_shards(job).values())

    cpu_seconds = 0.0
    with report_progress("assemble", sum(shard.length for shard in layout.shards), count_done):
        if todo:
            cpu_seconds = run_task(AssembleShards(job), todo, config.runner)
    shards = [shard for _, shard in sorted(finished_shards(job).items())]
    return AssembledShards(shards, len(reused), cpu_seconds)


def _lengths(records: pa.Table, previous: PreviousVersion | None) -> npt.NDArray[np.int64]:
    """The bytes that are copied of each planned record (PLAN_SCHEMA): int64 [records]."""
    lengths = np.asarray(records["stored_bytes"].to_numpy(), np.int64)
    if PREFIX + MASK_BYTES in records.schema.names:  # the mask lies behind its image
        lengths = lengths + records[PREFIX + MASK_BYTES].to_numpy()
    if previous is None:
        return lengths
    in_shards = pc.is_valid(records["shard"]).to_numpy()
    ids = record_ids(digest_bytes(records["sha256"]))
    return np.where(in_shards, previous.stored_lengths(ids), lengths)


def all_shards(inherited: Sequence[Shard], written: Sequence[Shard]) -> list[Shard]:
    """The shards of the version: train first, and of each split the inherited ones first."""
    return sorted([*inherited, *written], key=lambda shard: SPLITS.index(shard.split))
