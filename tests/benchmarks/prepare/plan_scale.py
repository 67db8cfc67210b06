"""Measure the time and memory of planning a large data set.

    python -m tests.benchmarks.prepare.plan_scale [--references 1000000 10000000]

Each row is measured in a process of its own; the peak of its resident memory counts what the libraries take,
and the tables that planning is given. They are synthetic: URIs of 36 characters, 1,000 classes of uneven
size, 1 % exact duplicates, 1 % near-duplicates, a group for one file in twenty.

*plan* is ``plan_version`` without the search for near-duplicates, and all rows of its inputs and records made
once. *ranges* is the same plan by ranges, one range after the other in one process, with the tables in a
temporary folder, and all rows read once; ``--no-looks`` leaves out the looks of the images, which halves the
bytes on disk. *near* is the search for near-duplicates alone; it takes about 2 GB for a million.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from infra.format.look import LOOK_BYTES, LOOK_SIDE, ROOT_UNIT

MIB = 1 << 20
CLASSES = 1000
BATCH = 1 << 18


def synthetic(count: int, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """(LISTING_SCHEMA, PLACED_FACTS_SCHEMA) of so many images, all of which could be read."""
    from beam_jobs.schemas import LISTING_SCHEMA, PLACED_FACTS_SCHEMA

    rng = np.random.default_rng(seed)
    # Classes one after the other, as the URIs sort; the sizes fall off as 1 / rank.
    shares = 1 / np.arange(1, CLASSES + 1)
    labels = np.sort(rng.choice(CLASSES, count, p=shares / shares.sum()).astype(np.int16))
    listing, facts = [], []
    for start in range(0, count, BATCH):
        part = labels[start : start + BATCH]
        listing.append(_listing(part, start, rng, LISTING_SCHEMA))
        facts.append(_facts(len(part), start, rng, PLACED_FACTS_SCHEMA))
    return pa.Table.from_batches(listing).combine_chunks(), pa.Table.from_batches(facts).combine_chunks()


def _listing(
    labels: np.ndarray[Any, Any], start: int, rng: np.random.Generator, schema: pa.Schema
) -> pa.RecordBatch:
    from beam_jobs.schemas import Status

    count = len(labels)
    names = [f"class_{label:04d}" for label in labels.tolist()]
    columns: dict[str, Any] = {
        "uri": [f"{name}/photographs_{at:09d}.jpg" for at, name in enumerate(names, start)],
        "size_bytes": rng.integers(20_000, 200_000, count),
        "mtime_ns": rng.integers(1 << 60, 1 << 61, count),
        "label": names,
        "status": np.full(count, Status.TO_READ, np.int8),
        "group": [f"p{at // 4}" if at % 20 == 0 else None for at in range(start, start + count)],
    }
    return pa.record_batch(
        [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(count, f.type) for f in schema],
        schema=schema,
    )


def _facts(count: int, start: int, rng: np.random.Generator, schema: pa.Schema) -> pa.RecordBatch:
    from beam_jobs.schemas import Status

    digests = rng.integers(0, 256, (count, 32), np.uint8)
    digests[7::100] = digests[6::100][: len(digests[7::100])]
    looks = _looks(count, rng)
    looks[13::100] = looks[12::100][: len(looks[13::100])]
    looks[13::100, -3:] += 1
    triples = rng.random((2, count * 3), np.float32) * 255
    offsets = np.arange(0, 3 * count + 1, 3, dtype=np.int32)
    columns = {
        "sha256": pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), count, [None, pa.py_buffer(digests)]),
        "status": np.full(count, Status.STORED, np.int8),
        "block": (np.arange(start, start + count) // 128).astype(np.int32),
        "offset_bytes": np.arange(start, start + count) * 28_000,
        "stored_bytes": rng.integers(20_000, 36_000, count),
        "height": rng.integers(256, 400, count),
        "width": rng.integers(256, 400, count),
        "stored_from": pa.repeat("planes", count),
        "source_format": pa.repeat("jpeg", count),
        "source_color": pa.repeat("YCbCr 4:2:0", count),
        "source_height": rng.integers(256, 4000, count),
        "source_width": rng.integers(256, 4000, count),
        "orientation": np.ones(count, np.int8),
        "had_alpha": np.zeros(count, np.bool_),
        "salvaged": np.zeros(count, np.bool_),
        "perceptual_hash": rng.integers(0, 1 << 64, count, np.uint64),
        "look": pa.BinaryArray.from_buffers(
            pa.binary(),
            count,
            [None, pa.py_buffer(np.arange(count + 1, dtype=np.int32) * LOOK_BYTES), pa.py_buffer(looks)],
        ),
        "pixel_mean": pa.ListArray.from_arrays(offsets, triples[0]),
        "pixel_std": pa.ListArray.from_arrays(offsets, triples[1]),
    }
    return pa.record_batch(
        [
            pa.array(columns[f.name]).cast(f.type) if f.name in columns else pa.nulls(count, f.type)
            for f in schema
        ],
        schema=schema,
    )


def _looks(count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Looks of unrelated images: int8 [count, 196]. Low frequencies are large, as in photographs."""
    frequencies = np.arange(LOOK_SIDE)
    sizes = 400 / (1 + np.hypot(frequencies[:, np.newaxis], frequencies).ravel())
    coefficients = rng.standard_normal((count, LOOK_BYTES), np.float32) * sizes.astype(np.float32)
    stored = np.clip(np.rint(ROOT_UNIT * np.sqrt(np.abs(coefficients))), 0, 127) * np.sign(coefficients)
    stored[:, 0] = 0
    return np.asarray(stored.astype(np.int8))


def _plan(listing: pa.Table, facts: pa.Table) -> Callable[[], dict[str, Any]]:
    from beam_jobs.config import PrepareConfig
    from beam_jobs.plan import plan_version
    from beam_jobs.publish.accounting import account

    config = PrepareConfig.model_validate({"groups": {"near_duplicates": False}})

    def measured() -> dict[str, Any]:
        plan = plan_version(listing, facts, config)
        accounting = account(plan.input_rows.batches())
        for shard in plan.shards:
            plan.planned.table(shard.start, shard.length)
        return {"records": accounting.num_records, "shards": len(plan.shards)}

    return measured


def _near(listing: pa.Table, facts: pa.Table) -> Callable[[], dict[str, Any]]:
    from beam_jobs.config import GroupsConfig
    from beam_jobs.plan.similarity.near_duplicates import find_near_duplicates

    looks = facts["look"]
    del listing, facts

    def measured() -> dict[str, Any]:
        return {"groups": find_near_duplicates(looks, GroupsConfig()).groups.count}

    return measured


PARTS = {"plan": _plan, "near": _near}


def measure_ranges(folder: Path, references: int, with_looks: bool) -> dict[str, Any]:
    """Plan by ranges, in this process."""
    from beam_jobs.config import PrepareConfig
    from beam_jobs.plan_by_ranges import plan_on_storage
    from beam_jobs.publish.accounting import account

    gathering = _written_ranges(folder, references, with_looks)
    given, given_disk = _peak_bytes(), _disk_bytes(folder)
    config = PrepareConfig.model_validate({"groups": {"near_duplicates": False}})
    started, cpu_started = time.monotonic(), time.process_time()
    steps: dict[str, float] = {}
    most = 0

    def run(task: Any, numbers: Any) -> None:
        nonlocal most
        before = time.process_time()
        for number in numbers:
            task.do(number)
        steps[task.name] = round(time.process_time() - before, 1)
        most = max(most, _disk_bytes(folder) - given_disk)
        print(task.name, steps[task.name], _peak_bytes() // MIB, file=sys.stderr, flush=True)

    plan = plan_on_storage(gathering, config, run=run)
    accounting = account(plan.input_rows.batches())
    records = sum(batch.num_rows for batch in plan.planned.batches())
    assert records == accounting.num_records
    return {
        "seconds": time.monotonic() - started,
        "cpu_seconds": time.process_time() - cpu_started,
        "given_bytes": given,
        "peak_bytes": _peak_bytes(),
        "disk_bytes": most,
        "steps": steps,
        "records": records,
        "shards": len(plan.shards),
    }


def _written_ranges(folder: Path, references: int, with_looks: bool) -> Any:
    """Write the listing and the blocks of facts that a plan by ranges is given."""
    from beam_jobs.encode.blocks import Block, write_facts
    from beam_jobs.plan_by_ranges import GatherFacts, plan_tables
    from beam_jobs.plan_by_ranges.choice import FILES_OF_A_RANGE
    from beam_jobs.plan_by_ranges.files import LISTED, FileRange
    from beam_jobs.schemas import FACTS_SCHEMA, LISTING_SCHEMA, PLACED_FACTS_SCHEMA
    from infra.storage.filesystem import Storage

    rng = np.random.default_rng(0)
    ranges = max(4, -(-references // FILES_OF_A_RANGE))
    shares = 1 / np.arange(1, CLASSES + 1)
    labels = np.sort(rng.choice(CLASSES, references, p=shares / shares.sum()).astype(np.int16))
    spool = Storage.at(str(folder))
    tables = plan_tables(spool, "scale", ranges)
    bounds = [number * references // ranges for number in range(ranges + 1)]
    parts, blocks = [], 0
    for number, (start, stop) in enumerate(pairwise(bounds)):
        listing, found = [], []
        for first in range(start, stop, BATCH):
            part = labels[first : min(first + BATCH, stop)]
            listing.append(_listing(part, first, rng, LISTING_SCHEMA))
            facts = pa.Table.from_batches([_facts(len(part), first, rng, PLACED_FACTS_SCHEMA)])
            facts = facts.select(FACTS_SCHEMA.names)
            if not with_looks:
                at = FACTS_SCHEMA.get_field_index("look")
                facts = facts.set_column(at, FACTS_SCHEMA.field(at), pa.nulls(len(part), pa.binary()))
            block = Block(f"block-{blocks}", first, len(part))
            write_facts(spool, block.digest, facts)
            found.append((blocks, block))
            blocks += 1
        tables.write(LISTED, number, pa.Table.from_batches(listing))
        parts.append(FileRange(start, stop, found, 0, stop - start))
    return GatherFacts(tables, parts, FACTS_SCHEMA)


def _disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def make(folder: Path, references: int) -> None:
    """Write the tables, each as one record batch: read again they take just what they hold."""
    for name, table in zip(("listing", "facts"), synthetic(references), strict=True):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


def read(folder: Path, name: str) -> pa.Table:
    """One of the tables."""
    with pa.OSFile(str(folder / name)) as source:
        return pa.ipc.open_file(source).read_all()


def measure(part: str, folder: Path) -> dict[str, Any]:
    """One part, in this process."""
    work = PARTS[part](read(folder, "listing"), read(folder, "facts"))
    given = _peak_bytes()
    started, cpu_started = time.monotonic(), time.process_time()
    found = work()
    return {
        "seconds": time.monotonic() - started,
        "cpu_seconds": time.process_time() - cpu_started,
        "given_bytes": given,
        "peak_bytes": _peak_bytes(),
        **found,
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _child(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.benchmarks.prepare.plan_scale", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    """Measure each part in a child, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--references", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--parts", choices=[*PARTS, "ranges"], nargs="+", default=["plan", "ranges", "near"])
    parser.add_argument("--no-looks", action="store_true", help="leave out the looks in the plan by ranges")
    parser.add_argument("--part", choices=[*PARTS, "ranges", "make"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part == "make":
        make(arguments.folder, arguments.references[0])
        return 0
    if arguments.part == "ranges":
        print(json.dumps(measure_ranges(arguments.folder, arguments.references[0], not arguments.no_looks)))
        return 0
    if arguments.part:
        print(json.dumps(measure(arguments.part, arguments.folder)))
        return 0
    print("| part | references | seconds | CPU-seconds | peak MiB | of it given MiB | disk MiB | found |")
    print("|---|---|---|---|---|---|---|---|")
    for references in arguments.references:
        with tempfile.TemporaryDirectory() as folder:
            if set(arguments.parts) & set(PARTS):
                _child("--part", "make", "--folder", folder, "--references", str(references))
            for part in arguments.parts:
                more = ["--no-looks"] if arguments.no_looks else []
                in_folder = str(Path(folder) / "ranges") if part == "ranges" else folder
                child = ["--part", part, "--folder", in_folder, "--references", str(references), *more]
                row = json.loads(_child(*child))
                found = ", ".join(
                    f"{row[name]:,} {name}" for name in ("records", "shards", "groups") if name in row
                )
                print(
                    f"| {part} | {references:,} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} "
                    f"| {row['peak_bytes'] / MIB:,.0f} | {row['given_bytes'] / MIB:,.0f} "
                    f"| {row.get('disk_bytes', 0) / MIB:,.0f} | {found} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
