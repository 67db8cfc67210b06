"""Measure the cost of scheduling the blocks and shards of a large dataset, without any work in them.

    python -m tests.benchmarks.scale.schedule [--images 10000000 100000000]

Runs the pipeline of ``prepare`` on the embedded runner with a task that does nothing, once with a number for
each block of 128 images and once for each shard of 4,400. CPU-seconds are those of all processes; *peak* is
the resident memory of the process that runs the pipeline, with Beam.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from typing import ClassVar

from shardmill.beam_jobs.config import RunnerConfig
from shardmill.beam_jobs.execution.runners import run_task
from shardmill.beam_jobs.execution.task import Task

MIB = 1 << 20
IMAGES = {"block": 128, "shard": 4_400}


class DoNothing(Task):
    """Does nothing."""

    name: ClassVar[str] = "DoNothing"

    def do(self, number: int) -> None:
        """Do nothing."""


def measure(numbers: int) -> dict[str, float]:
    """Run the pipeline in this process."""
    run_task(DoNothing(), range(numbers), RunnerConfig(processes=2))
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in (own, others))
    return {"cpu_seconds": cpu, "peak_bytes": own.ru_maxrss * 1024}


def main() -> int:
    """Measure each row in a child, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--numbers", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.numbers:
        print(json.dumps(measure(arguments.numbers)))
        return 0
    print("| images | numbers | CPU-seconds | peak MiB |\n|---|---|---|---|")
    for images in arguments.images:
        for unit, each in IMAGES.items():
            numbers = -(-images // each)
            command = [sys.executable, "-m", "tests.benchmarks.scale.schedule"]
            done = subprocess.run(
                [*command, "--numbers", str(numbers)], check=True, stdout=subprocess.PIPE, text=True
            )
            row = json.loads(done.stdout)
            print(
                f"| {images:,} | {numbers:,} {unit}s | {row['cpu_seconds']:.1f} "
                f"| {row['peak_bytes'] / MIB:,.0f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
