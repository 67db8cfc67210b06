"""The assemble stage: the container, the shards that are finished, and the job that writes the others.

Container ``auto`` packs a sample of the records, chosen by a hash of their ids, in both ways, and takes gzip
if it saves enough. Only sizes decide, never timings: the same records give the same container everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.assemble.copying import ShardsToCopyFrom, ShardsToWrite, image_and_mask
from shardmill.beam_jobs.assemble.shard_task import AssembleShards, finished_shards, reuse_shards, write_plan
from shardmill.beam_jobs.config import PrepareConfig, RunnerConfig
from shardmill.beam_jobs.encode.blocks import spool_file
from shardmill.beam_jobs.execution.progress import report_progress
from shardmill.beam_jobs.execution.runners import run_task
from shardmill.beam_jobs.plan import AnyPlan, PlannedShard
from shardmill.beam_jobs.plan.shards import Assembly
from shardmill.beam_jobs.reuse.previous import PreviousVersion
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.beam_jobs.tables.ids import digest_bytes, record_ids
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import SPLITS, Shard
from shardmill.infra.format.examples import ImageRecord, build_example
from shardmill.infra.format.features import feature_values
from shardmill.infra.format.known_features import MASK_BYTES, class_name
from shardmill.infra.format.records import Container, pack_record
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import RangeReader

SAMPLE_RECORDS = 256

# A smaller saving is not worth inflating each record whenever it is read: 0.05 to 0.1 ms, beside about 1 ms
# to decode a photograph. JPEG, PNG and WebP save 0 to 2 %, raw pixels 20 to 60 %.
WORTHWHILE_SAVING = 0.05


@dataclass(frozen=True, slots=True)
class ContainerChoice:
    """A container, and why."""

    container: Container
    reason: str


def choose_container(
    config: PrepareConfig,
    plan: AnyPlan,
    spool: Storage,
    block_digests: Sequence[str],
    previous: PreviousVersion | None = None,
    channels: int = 3,
) -> ContainerChoice:
    """Choose the container of a plan's shards: as configured, as in the previous version, or by a sample.

    Args:
        config: names a container, or says "auto".
        plan: the plan.
        spool: holds the images of its records.
        block_digests: digest of each block, by its number.
        previous: the version whose container is kept while its stored images are.
        channels: of the stored images.
    """
    if config.shards.container != "auto":
        return ContainerChoice(config.shards.container, "as configured")
    if previous is not None and previous.reuse.contents:
        version = previous.version
        return ContainerChoice(version.manifest.container, f"auto: as {version.ref} has it")
    sample = plan.planned.sample(SAMPLE_RECORDS, config.seed)
    with closing(RangeReader(spool)) as images:
        examples = [
            _example(row, plan, channels, spool_file(block_digests[row["block"]]), images)
            for row in sample.to_pylist()
        ]
    return decide(examples)


def _example(row: Mapping[str, Any], plan: AnyPlan, channels: int, block: str, images: RangeReader) -> bytes:
    """Build the example of a planned record, a row of PLAN_SCHEMA and columns of features."""
    features = feature_values(plan.features, {name.removeprefix(PREFIX): row[name] for name in row})
    length = row["stored_bytes"] + row.get(PREFIX + MASK_BYTES, 0)
    image, mask = image_and_mask(images.read(block, row["offset_bytes"], length), features)
    name = class_name(plan.classes, row["label"])
    size = row["height"], row["width"], channels
    return build_example(ImageRecord(row["id"], image, row["label"], name, *size, mask), features)


def decide(examples: Iterable[bytes]) -> ContainerChoice:
    """Choose gzip if it saves enough on these serialised examples, else none."""
    count = plain = packed = 0
    for example in examples:
        count += 1
        plain += len(pack_record(example, "none"))
        packed += len(pack_record(example, "gzip"))
    if not count:
        return ContainerChoice("none", "auto: there is no record to try")
    saving = 1 - packed / plain
    records = "the one record" if count == 1 else f"{count} sampled records"
    changes = f"saves {saving:.1%}" if saving >= 0 else f"adds {-saving:.1%}"
    found = f"auto: gzip {changes} of {records}"
    if saving >= WORTHWHILE_SAVING:
        return ContainerChoice("gzip", found)
    return ContainerChoice("none", f"{found}; {WORTHWHILE_SAVING:.0%} would be worth inflating them")


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
    channels: int,
    runner: RunnerConfig,
) -> AssembledShards:
    """Write the planned shards that are not finished.

    Args:
        layout: the shards.
        copying: where records are copied from and to.
        container: of the shards.
        channels: of the stored images.
        runner: settings of the Beam job.
    """
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
        channels,
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
            cpu_seconds = run_task(AssembleShards(job), todo, runner)
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
