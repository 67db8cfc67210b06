"""The encode stage: which blocks are finished already, and the Beam job that encodes the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import ImageConfig, PrepareConfig
from shardmill.beam_jobs.encode.block_task import EncodeBlocks
from shardmill.beam_jobs.encode.blocks import (
    LEAST_FILES,
    Block,
    cut_blocks,
    find_finished,
    finished_blocks,
    further_pictures,
    place_facts,
    read_facts,
    reuse_blocks,
    write_references,
)
from shardmill.beam_jobs.encode.facts import facts_schema, noted_samples
from shardmill.beam_jobs.execution.pool import files_in_progress
from shardmill.beam_jobs.execution.progress import report_progress
from shardmill.beam_jobs.execution.runners import num_at_a_time, run_task, started_processes
from shardmill.beam_jobs.execution.verdicts import known_verdicts
from shardmill.beam_jobs.sources.kind_modules import Reader
from shardmill.beam_jobs.tables.columns import share_empty_texts
from shardmill.infra.errors import DataError
from shardmill.infra.native.area import is_compiled
from shardmill.infra.preparation import SampleKind
from shardmill.infra.progress import log
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage

_BLOCKS_AT_A_TIME = 64  # whose tables are joined to one


@dataclass(frozen=True)
class EncodedFiles:
    """Files that were read, in blocks.

    Attributes:
        blocks: all of them, in order.
        reused: numbers of those that an earlier run had finished.
        cpu_seconds: processor time of the pool.
        schema: columns of the tables of facts: FACTS_SCHEMA and columns of features.
    """

    blocks: Sequence[Block]
    reused: Sequence[int]
    cpu_seconds: float
    schema: pa.Schema

    @property
    def digests(self) -> list[str]:
        """The digest of each block, by its number."""
        return [block.digest for block in self.blocks]

    def num_reused_files(self) -> int:
        """The number of files in blocks that an earlier run had finished."""
        return sum(self.blocks[number].length for number in self.reused)

    def num_decoded(self, is_stored_before: npt.NDArray[np.bool_]) -> int:
        """The number of files that this run decoded.

        Args:
            is_stored_before: bool [files], those whose content the previous version stores.
        """
        in_reused = sum(
            np.count_nonzero(~is_stored_before[block.start : block.start + block.length])
            for block in (self.blocks[number] for number in self.reused)
        )
        return int(np.count_nonzero(~is_stored_before) - in_reused)

    def samples(
        self, spool: Storage, image: ImageConfig, before: tuple[SampleKind, int] | None
    ) -> SampleKind:
        """Return the samples that all stored images of the version have: see ``samples_of``."""
        schemas = (read_facts(spool, block).schema for block in self.blocks)
        return image.samples or samples_of(schemas, before)

    def facts(self, spool: Storage) -> pa.Table:
        """Read the facts of all files, with the block of each: PLACED_FACTS_SCHEMA and features."""
        lengths = [block.length for block in self.blocks]
        numbers = np.repeat(np.arange(len(self.blocks), dtype=np.int32), lengths)
        parts = [self.schema.empty_table()]
        for start in range(0, len(self.blocks), _BLOCKS_AT_A_TIME):
            blocks = self.blocks[start : start + _BLOCKS_AT_A_TIME]
            parts.append(pa.concat_tables([read_facts(spool, block) for block in blocks]).combine_chunks())
        return place_facts(_in_one_chunk(parts, self.schema), numbers)


def samples_of(schemas: Iterable[pa.Schema], before: tuple[SampleKind, int] | None = None) -> SampleKind:
    """Return the samples that all stored images have, where the settings leave them to the files.

    Args:
        schemas: of the facts of all blocks.
        before: samples of the previous version, and the number of files known to be in it; None: there is
            no such version, or nothing of it is used.

    Raises:
        DataError: the files differ.
    """
    found: Counter[SampleKind | None] = Counter({None: before[1] if before else 0})
    for schema in schemas:
        found += noted_samples(schema)
    if before is not None:
        found[before[0]] += found[None]
    kinds = {kind: count for kind, count in found.items() if kind and count}
    if len(kinds) <= 1:
        return next(iter(kinds), before[0] if before else SampleKind("uint8", 3))
    said = [
        f"{counted(kinds[kind], 'image')} of {kind}" for kind in sorted(kinds, key=lambda one: -kinds[one])
    ]
    remedies = []
    if len({kind.dtype for kind in kinds}) > 1:
        remedies.append(
            "image.depth to 8 or 16 (from black to white) or to float32 (the numbers of the files)"
        )
    if len({kind.channels for kind in kinds}) > 1:
        remedies.append("image.channels to 1 (grey) or 3 (RGB), which quarantines images of other channels")
    raise DataError(
        f"the images of a dataset have one type and number of channels, and these are {', '.join(said)}",
        f"set {' and '.join(remedies)}; or leave files out by filter.ignore",
    )


def _in_one_chunk(parts: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """The tables joined, with no more than one column in memory twice. Empties the list."""
    columns = {}
    for field in schema:
        joined = pa.chunked_array([chunk for part in parts for chunk in part[field.name].chunks], field.type)
        parts[:] = [part.drop_columns([field.name]) for part in parts]
        columns[field.name] = pa.table({field.name: joined}).combine_chunks()[field.name]
        del joined
    # As a rule no file was lost, and there is no reason why.
    return share_empty_texts(pa.table(columns, schema=schema))


def encode_files(references: pa.Table, source: Reader, spool: Storage, config: PrepareConfig) -> EncodedFiles:
    """Encode files into the spool, except the blocks that are finished there.

    Args:
        references: REFERENCE_SCHEMA, sorted by URI.
        source: reads the files.
        spool: receives the blocks.
        config: how images are stored, and the runner.
    """
    finished = find_finished(spool, references)
    unfinished = references.num_rows - sum(block.length for block in finished)
    with started_processes(config.runner, unfinished // LEAST_FILES):
        return _encode(references, finished, source, spool, config)


def _encode(
    references: pa.Table, finished: Sequence[Block], source: Reader, spool: Storage, config: PrepareConfig
) -> EncodedFiles:
    runner = config.runner
    blocks = cut_blocks(references, runner.block_images, num_at_a_time(runner), finished)
    write_references(spool, references, blocks)
    done = reuse_blocks(spool, blocks, known_verdicts(spool, runner))
    reused = [number for number, block in enumerate(blocks) if block.digest in done]
    todo = [number for number, block in enumerate(blocks) if block.digest not in done]
    if reused:
        log(f"continuing from {len(reused):,} of {len(blocks):,} finished blocks")

    def count_done() -> int:
        in_progress = files_in_progress(EncodeBlocks.name)  # first, as a block may be finished meanwhile
        return count_files(blocks, finished_blocks(spool), in_progress)

    averages = config.image.resize != "none" and config.image.resample == "area"
    if todo and averages and not is_compiled():
        log("area averaging is not compiled, so images take half as long again; see docs/first-dataset.md")
    cpu_seconds = 0.0
    with report_progress("encode", references.num_rows, count_done):
        if todo:
            cpu_seconds = run_task(EncodeBlocks(source, spool, config), todo, runner)
    if (warning := further_pictures(spool, blocks, config.image)) is not None:
        log(warning, level="warning")
    return EncodedFiles(blocks, reused, cpu_seconds, facts_schema(config))


def count_files(blocks: Sequence[Block], finished: Collection[str], in_progress: Mapping[int, int]) -> int:
    """Return how many files are done.

    Args:
        blocks: all of them.
        finished: digests of the blocks that are complete.
        in_progress: files done of the blocks that are being encoded, by the block's number.
    """
    in_blocks = sum(block.length for block in blocks if block.digest in finished)
    begun = {number: files for number, files in in_progress.items() if blocks[number].digest not in finished}
    return in_blocks + sum(begun.values())
