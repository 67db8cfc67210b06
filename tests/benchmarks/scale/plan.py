"""Measure the time and memory of planning a large dataset, and check the plans by ranges.

    python -m tests.benchmarks.scale.plan [--references 1000000 10000000]
    python -m tests.benchmarks.scale.plan --parts ranges --lean --references 100000000    # 60 GB on disk

Each row is measured in a process of its own. The references are synthetic (``references``): URIs of 31
characters, 1,000 classes of uneven size, duplicates, groups by key, broken and filtered files.

*plan* is ``plan_version`` without the search for near-duplicates, and all rows of its inputs and records
made once. *ranges* is the same plan by ranges of a million files (``--ranges`` for other numbers of them),
two at a time in processes of their own. Making the references is part of its first task, and reading them
from the blocks of the spool is not. All of its rows are then checked (``checks``), and its digest must be
that of every other row of as many references. *near* is the search for near-duplicates alone.

``--lean`` leaves out the look, mean and deviation of each image, which are 40 % of the bytes on disk.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import GroupsConfig
from shardmill.beam_jobs.encode.blocks import place_facts
from shardmill.beam_jobs.plan import plan_version
from shardmill.beam_jobs.plan.similarity.near_duplicates import find_near_duplicates
from shardmill.beam_jobs.publish.accounting import account
from shardmill.beam_jobs.publish.digests import plan_digest
from shardmill.beam_jobs.schemas import IMAGE_NAMES
from shardmill.beam_jobs.tables.columns import code_texts
from tests.benchmarks.scale.ranges import CONFIG, DIGESTS, measure_ranges
from tests.benchmarks.scale.references import References

MIB = 1 << 20
FILES_OF_A_RANGE = 1_000_000
BATCH = 250_000


def in_chunks(references: References) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield listing and facts, some at a time."""
    for start in range(0, references.count, BATCH):
        stop = min(start + BATCH, references.count)
        facts = references.facts(start, stop)
        yield references.listing(start, stop), place_facts(facts, np.zeros(facts.num_rows, np.int32))


def measure_plan(references: References) -> dict[str, Any]:
    """Plan in this process."""
    listings, facts = zip(*in_chunks(references), strict=True)
    listing = code_texts(pa.concat_tables(listings), ("label",))
    known = code_texts(pa.concat_tables(facts), IMAGE_NAMES)
    del listings, facts
    given = _peak_bytes()
    started, cpu_started = time.monotonic(), time.process_time()
    plan = plan_version(listing, known, CONFIG)
    accounting = account(plan.input_rows.batches())
    for shard in plan.shards:
        plan.planned.table(shard.start, shard.length)
    return {
        **_measured(started, cpu_started, given),
        "records": accounting.num_records,
        "shards": len(plan.shards),
        "digest": plan_digest(plan, DIGESTS, "none"),
    }


def measure_near(references: References) -> dict[str, Any]:
    """Find near-duplicates in this process."""
    looks = pa.chunked_array([chunk for _, facts in in_chunks(references) for chunk in facts["look"].chunks])
    given = _peak_bytes()
    started, cpu_started = time.monotonic(), time.process_time()
    groups = find_near_duplicates(looks, GroupsConfig()).groups.count
    return {**_measured(started, cpu_started, given), "groups": groups}


def _measured(started: float, cpu_started: float, given: int) -> dict[str, Any]:
    return {
        "seconds": time.monotonic() - started,
        "cpu_seconds": time.process_time() - cpu_started,
        "given_bytes": given,
        "peak_bytes": _peak_bytes(),
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def rows_of(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure each row in a child; yield its name and its result."""
    for references in arguments.references:
        for part in arguments.parts:
            default = max(4, -(-references // FILES_OF_A_RANGE))
            for ranges in (arguments.ranges or [default]) if part == "ranges" else [0]:
                name = f"{ranges} ranges" if ranges else part
                with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                    row = _child(part, folder, references, ranges, arguments)
                yield f"{name} | {references:,}", {**row, "references": references}


def _child(
    part: str, folder: str, references: int, ranges: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.scale.plan", "--part", part, "--folder", folder]
    command += ["--references", str(references), "--ranges", str(ranges)]
    command += ["--processes", str(arguments.processes), *(["--lean"] if arguments.lean else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def measure(part: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one part in this process."""
    references = References(arguments.references[0], arguments.lean)
    if part == "ranges":
        return measure_ranges(arguments.folder, references, arguments.ranges[0], arguments.processes)
    return measure_plan(references) if part == "plan" else measure_near(references)


def main() -> int:
    """Measure each part in a child, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ["plan", "ranges", "near"]
    parser.add_argument("--references", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--parts", choices=parts, nargs="+", default=parts)
    parser.add_argument("--ranges", type=int, nargs="+", help="numbers of ranges; default: one per million")
    parser.add_argument("--processes", type=int, default=2, help="that plan ranges")
    parser.add_argument("--lean", action="store_true", help="leave out look, mean and deviation of images")
    parser.add_argument(
        "--folder", type=Path, help="holds the tables; default: the folder for temporary files"
    )
    parser.add_argument("--part", choices=parts, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(measure(arguments.part, arguments)))
        return 0
    print("| plan | references | seconds | CPU-s | peak MiB | of a process | disk MiB | found |")
    print("|---|---|---|---|---|---|---|---|")
    digests = defaultdict(set)
    for name, row in rows_of(arguments):
        found = ", ".join(f"{row[one]:,} {one}" for one in ("records", "shards", "groups") if one in row)
        print(
            f"| {name} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} | {row['peak_bytes'] / MIB:,.0f} "
            f"| {row.get('peak_of_processes_bytes', 0) / MIB:,.0f} "
            f"| {row.get('disk_bytes', 0) / MIB:,.0f} | {found} |",
            flush=True,
        )
        print(json.dumps(row), file=sys.stderr, flush=True)
        if "digest" in row:
            digests[row["references"]].add(row["digest"])
    assert all(len(found) == 1 for found in digests.values()), f"the plans differ: {dict(digests)}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
