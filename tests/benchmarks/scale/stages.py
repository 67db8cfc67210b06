"""Measure the steps of scheduling that grow with a dataset, on synthetic references of a large one.

    python -m tests.benchmarks.scale.stages [--images 100000000] [--only blocks shards epoch]

*blocks*: the references are cut into blocks and written, a million at a time. Of one million the blocks get
tables of facts, which are then looked through as by a run that continues another one, and read.
*shards*: every shard has a note with its counts of 1,000 classes, and empty files of the right sizes.
*epoch*: the table of a split as a rank holds it, the order by block, and the shards of the next steps.

Each row is measured in a process of its own, by its CPU-seconds; *peak* is its resident memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from shardmill.beam_jobs.assemble.copying import ShardsToWrite
from shardmill.beam_jobs.assemble.shard_task import finished_shards, first_batches
from shardmill.beam_jobs.config import PrepareConfig, RunnerConfig
from shardmill.beam_jobs.encode.blocks import (
    cut_blocks,
    facts_digest,
    reuse_blocks,
    spool_file,
    write_facts,
    write_references,
)
from shardmill.beam_jobs.encode.stage import EncodedFiles
from shardmill.beam_jobs.plan import RECORD_OVERHEAD_BYTES, num_shards
from shardmill.beam_jobs.plan.shards import cut_split
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, Status
from shardmill.infra.format.contract import SPLITS, Shard
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.order import BlockSizes, TrainingOrder
from shardmill.training.reading import SplitTable
from shardmill.training.reading.staging.shard_lookahead import ShardLookahead, StepRange, least_budget
from tests.benchmarks.scale.references import CLASSES, References

MIB = 1 << 20
AT_ONCE = 1_000_000
STORED_BYTES = 30_000
STAGED_BYTES = 500 << 30
STEPS = 200
BATCH = 1024


class Steps:
    """Times of steps, in CPU-seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Add the time of a block to a step."""
        started = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - started


def measure_blocks(images: int, folder: Path, steps: Steps) -> None:
    """Cut blocks, and find them again."""
    references, spool = References(images), Storage.at(str(folder))
    for start in range(0, images, AT_ONCE):
        listed = references.listing(start, start + AT_ONCE)
        to_read = listed.filter(pc.equal(listed["status"], Status.TO_READ))
        with steps.measured("cut all into blocks"):
            blocks = cut_blocks(to_read, RunnerConfig().block_images)
        with steps.measured("write all references"):
            write_references(spool, to_read, blocks)
    facts = references.facts(start, start + AT_ONCE)
    for block in blocks:
        rows = facts.slice(block.start, block.length)
        write_facts(spool, block.digest, rows)
        with (folder / spool_file(block.digest)).open("wb") as stored:
            stored.truncate(pc.sum(rows["stored_bytes"]).as_py())
    with steps.measured("find the finished blocks of a million"):
        assert len(reuse_blocks(spool, blocks)) == len(blocks)
    with steps.measured("digest of the facts of a million"):
        facts_digest(spool)
    with steps.measured("read the facts of a million"):
        EncodedFiles(blocks, [], 0.0, FACTS_SCHEMA).facts(spool)


def measure_shards(images: int, folder: Path, steps: Steps) -> None:
    """Find the batches of all shards, and read all notes."""
    num_bytes = images * (STORED_BYTES + RECORD_OVERHEAD_BYTES)
    shards = cut_split("train", 0, images, num_shards(images, num_bytes, PrepareConfig().shards))
    storage = Storage.at(str(folder))
    classes = [f"class_{code:04d}" for code in range(CLASSES)]
    job = ShardsToWrite(storage, storage, "plan", shards, [], classes, 3, "none")
    for path in (job.shard_path(0), job.note_path(0)):
        (folder / path).parent.mkdir(parents=True)
    for number, shard in enumerate(shards):
        note = Shard(
            path=job.shard_path(number),
            index_path=job.index_path(number),
            split=shard.split,
            num_examples=shard.length,
            num_bytes=shard.length * STORED_BYTES,
            payload_bytes=shard.length * STORED_BYTES,
            sha256="0" * 64,
            index_bytes=shard.length * 281,
            index_sha256="0" * 64,
            class_counts=dict.fromkeys(classes, shard.length // CLASSES + 300),
        )
        for path, size in ((note.path, note.num_bytes), (note.index_path, note.index_bytes)):
            with (folder / path).open("wb") as file:
                file.truncate(size)
        (folder / job.note_path(number)).write_text(note.model_dump_json())
    with steps.measured("first batch of each shard"):
        first_batches(shards)
    with steps.measured("read all notes"):
        assert len(finished_shards(job)) == len(shards)


def measure_epoch(images: int, folder: Path, steps: Steps) -> None:
    """Find the shards of the next steps of an order by block."""
    sizes = [shard.length for shard in cut_split("train", 0, images, -(-images // 4400))]
    labels = References(images).labels(np.arange(images)).astype(np.int32)
    rows = np.zeros(images, np.int32)
    shard = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    offsets = np.arange(images, dtype=np.int64) * STORED_BYTES
    paths = tuple(f"{SPLITS[0]}-{number:05d}" for number in range(len(sizes)))
    table = SplitTable("train", paths, shard, offsets, rows, labels, rows, rows, offsets.astype(np.uint64))
    with steps.measured("make the order"):
        order = TrainingOrder(
            labels, seed=0, global_batch_size=BATCH, blocks=BlockSizes(), shard_sizes=np.array(sizes)
        )
    step_range = StepRange(order, table, 0, 10 * order.steps_per_epoch)
    num_bytes = np.array(sizes, np.int64) * STORED_BYTES
    with steps.measured("least budget"):
        least_budget(step_range, num_bytes)
    with steps.measured("look ahead at first"):
        ahead = ShardLookahead(step_range, num_bytes, STAGED_BYTES)
        ahead.advance(0)
    with steps.measured(f"look ahead in {STEPS} steps"):
        for step in range(1, STEPS + 1):
            ahead.advance(step)
    with steps.measured(f"next uses, {STEPS} times"):
        for step in range(STEPS):
            ahead.next_uses(step)


PARTS: dict[str, Callable[[int, Path, Steps], None]] = {
    "blocks": measure_blocks,
    "shards": measure_shards,
    "epoch": measure_epoch,
}


def main() -> int:
    """Measure each part in a child, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100_000_000)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        steps = Steps()
        with tempfile.TemporaryDirectory() as folder:
            PARTS[arguments.part](arguments.images, Path(folder), steps)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"steps": steps.seconds, "peak_bytes": peak}))
        return 0
    print("| step | images | CPU-s | peak MiB of the part |")
    print("|---|---|---|---|")
    for part in arguments.only:
        command = [sys.executable, "-m", "tests.benchmarks.scale.stages", "--part", part]
        command += ["--images", str(arguments.images)]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        for name, seconds in row["steps"].items():
            peak = f"{row['peak_bytes'] / MIB:,.0f}"
            print(f"| {name} | {arguments.images:,} | {seconds:.2f} | {peak} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
