"""The two Beam jobs of a run: what is given to them, what was finished before, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.assemble import AssembleShards, AssembleTask, finished_shards, reuse_shards, write_plan
from beam_jobs.blocks import (
    FACTS_SCHEMA,
    Block,
    cut_blocks,
    finished_blocks,
    read_facts,
    reuse_blocks,
    write_references,
)
from beam_jobs.config import PrepareConfig
from beam_jobs.copying import ShardsToCopyFrom
from beam_jobs.encode import EncodeBlocks
from beam_jobs.guard.verdicts import known_verdicts
from beam_jobs.known import Parent
from beam_jobs.plan import Plan, PlannedShard
from beam_jobs.plan.hashing import digest_bytes, record_ids
from beam_jobs.plan.shards import Assembly
from beam_jobs.runners import run_pipeline
from beam_jobs.sources.folder import SourceFolder
from beam_jobs.texts import share_empty_texts
from beam_jobs.watch import watched
from infra.catalog import DatasetVersion
from infra.codecs import area
from infra.contract import SPLITS, Shard
from infra.progress import log
from infra.records import Container
from infra.storage import Storage

_BLOCKS_AT_A_TIME = 64  # whose tables are joined to one


@dataclass(frozen=True)
class EncodedFiles:
    """Files that were read, in blocks.

    Attributes:
        blocks: all of them, in order.
        reused: numbers of those that an earlier run had finished.
    """

    blocks: Sequence[Block]
    reused: Sequence[int]

    @property
    def digests(self) -> list[str]:
        """Of each block, by its number."""
        return [block.digest for block in self.blocks]

    def num_reused_files(self) -> int:
        """How many files lie in blocks that were finished before."""
        return sum(self.blocks[number].length for number in self.reused)

    def facts(self, spool: Storage) -> tuple[pa.Table, npt.NDArray[np.int32]]:
        """(FACTS_SCHEMA, a row a file; the number of the block of each: int32 [N])."""
        lengths = [block.length for block in self.blocks]
        numbers = np.repeat(np.arange(len(self.blocks), dtype=np.int32), lengths)
        parts = [FACTS_SCHEMA.empty_table()]
        for start in range(0, len(self.blocks), _BLOCKS_AT_A_TIME):
            blocks = self.blocks[start : start + _BLOCKS_AT_A_TIME]
            parts.append(pa.concat_tables([read_facts(spool, block) for block in blocks]).combine_chunks())
        return _in_one_chunk(parts), numbers


def _in_one_chunk(parts: list[pa.Table]) -> pa.Table:
    """Tables joined, column by column: never more than one column is there twice. Empties the list."""
    columns = {}
    for field in FACTS_SCHEMA:
        joined = pa.chunked_array([chunk for part in parts for chunk in part[field.name].chunks], field.type)
        parts[:] = [part.drop_columns([field.name]) for part in parts]
        columns[field.name] = pa.table({field.name: joined}).combine_chunks()[field.name]
        del joined
    # As a rule no file was lost, and there is no reason why.
    return share_empty_texts(pa.table(columns, schema=FACTS_SCHEMA))


def encode_files(
    references: pa.Table, source: SourceFolder, spool: Storage, config: PrepareConfig
) -> EncodedFiles:
    """Encode files into the spool, but for the blocks that are finished there.

    Args:
        references: REFERENCE_SCHEMA, sorted by URI.
    """
    blocks = cut_blocks(references, config.runner.block_images)
    write_references(spool, references, blocks)
    done = reuse_blocks(spool, blocks, known_verdicts(spool, config.runner))
    reused = [number for number, block in enumerate(blocks) if block.digest in done]
    todo = [number for number, block in enumerate(blocks) if block.digest not in done]
    # The longest first: what the others wait for in the end is then a short one.
    todo.sort(key=lambda number: blocks[number].length, reverse=True)
    if reused:
        log(f"going on from {len(reused):,} of {len(blocks):,} finished blocks")
    length_of = {block.digest: block.length for block in blocks}

    def count_done() -> int:
        return sum(length_of.get(digest, 0) for digest in finished_blocks(spool))

    averages = config.image.resize != "none" and config.image.resample == "area"
    if todo and averages and not area.is_compiled():
        log("area averaging is not compiled, so images take half as long again; see docs/first-dataset.md")
    with watched("encode", references.num_rows, count_done):
        if todo:
            run_pipeline(EncodeBlocks(source, spool, config), todo, config.runner)
    return EncodedFiles(blocks, reused)


@dataclass(frozen=True)
class Copying:
    """Where records are copied from and to.

    Attributes:
        dataset: its folder.
        spool: of the run.
        plan_digest: names the folder of the new shards.
        block_digests: of the blocks in the spool, by number.
        before: the version whose stored records are copied.
    """

    dataset: Storage
    spool: Storage
    plan_digest: str
    block_digests: Sequence[str]
    before: DatasetVersion | None


@dataclass(frozen=True)
class Layout:
    """What is assembled, but for its records, which lie in the spool: these may be many.

    Attributes:
        shards: ranges of the records, train first.
        classes: names by label.
        published: shards that the same plan wrote for earlier versions.
    """

    shards: Sequence[PlannedShard]
    classes: Sequence[str]
    published: Sequence[Shard]


def lay_out(
    plan: Assembly, copying: Copying, parent: Parent | None, published: Iterable[Shard] = ()
) -> Layout:
    """Write the records of a plan to the spool, for workers to pick theirs from.

    Args:
        parent: of the version that stored records are copied from.
        published: shards that the same plan wrote for earlier versions.
    """
    write_plan(copying.spool, copying.plan_digest, plan, partial(_lengths, parent=parent))
    return Layout(list(plan.shards), list(plan.classes), list(published))


def assemble_shards(
    layout: Layout,
    copying: Copying,
    container: Container,
    config: PrepareConfig,
) -> tuple[list[Shard], int]:
    """Write the shards that are not finished; returns all that are planned, and how many were found."""
    earlier = ShardsToCopyFrom()
    if copying.before is not None:
        before = copying.before.manifest
        earlier = ShardsToCopyFrom([shard.path for shard in before.shards], before.container)
    task = AssembleTask(
        copying.spool,
        copying.dataset,
        copying.plan_digest,
        layout.shards,
        copying.block_digests,
        layout.classes,
        config.image.channels,
        container,
        earlier,
    )
    reused = reuse_shards(task, layout.published)
    todo = [number for number in range(len(layout.shards)) if number not in reused]
    if reused:
        log(f"going on from {len(reused):,} of {len(layout.shards):,} finished shards")

    def count_done() -> int:
        return sum(shard.num_examples for shard in finished_shards(task).values())

    with watched("assemble", sum(shard.length for shard in layout.shards), count_done):
        if todo:
            run_pipeline(AssembleShards(task), todo, config.runner)
    return [shard for _, shard in sorted(finished_shards(task).items())], len(reused)


def _lengths(records: pa.Table, parent: Parent | None) -> npt.NDArray[np.int64]:
    """How many bytes are copied of each planned record (PLAN_SCHEMA): int64 [records]."""
    lengths = np.asarray(records["stored_bytes"].to_numpy(), np.int64)
    if parent is None:
        return lengths
    in_shards = records["block"].to_numpy() < 0
    ids = record_ids(digest_bytes(records["sha256"]))
    return np.where(in_shards, parent.stored_lengths(ids), lengths)


def inherited_shards(before: DatasetVersion | None, plan: Plan) -> list[Shard]:
    """Those of the version before that stay as they are."""
    return [before.manifest.shards[number] for number in plan.inherited] if before else []


def all_shards(inherited: Sequence[Shard], written: Sequence[Shard]) -> list[Shard]:
    """The shards of the version: train first, and of each split the inherited ones first."""
    return sorted([*inherited, *written], key=lambda shard: SPLITS.index(shard.split))
