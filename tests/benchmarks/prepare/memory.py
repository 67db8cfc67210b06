"""Does prepare's memory stay flat? Its peak on a few and on many small photographs.

    python -m tests.benchmarks.prepare.memory [--images 4000,100000] [--work DIR]

Memory is that of the whole process tree, sampled from outside: PSS, where what several processes share is
divided among them, and RSS, where it counts for each. (Other runs of Shardmill at the same time take their
share of PSS: trust RSS then.) The aim: at most 400 MiB, and within 10 % of each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.inputs.photo_folders import make_small_photographs
from tests.benchmarks.measuring.process_tree import Cost, run_measured

_REPOSITORY = Path(__file__).parents[3]
_MOST_MIB = 400
_MOST_GROWTH = 1.10


@dataclass(frozen=True, slots=True)
class Run:
    """One prepare: images that became records, and its cost."""

    num_records: int
    cost: Cost


def measure(source: Path, root: Path) -> Run:
    """Run prepare once, on two workers."""
    argv = [sys.executable, "-m", "shardmill.beam_jobs.prepare", str(source), "--dataset", source.name]
    argv += ["--root", str(root), "--json", "--set", "runner.processes=2"]
    cost = run_measured(argv, _REPOSITORY)
    return Run(json.loads(cost.output.splitlines()[-1])["num_records"], cost)


def main() -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", default="4000,100000", help="so many each (default 4000,100000)")
    parser.add_argument(
        "--work", type=Path, help="folder for photographs and datasets (default: a temporary)"
    )
    told = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory(dir=told.work, prefix="prepare-memory-") as work:
        for count in map(int, told.images.split(",")):
            source = make_small_photographs(Path(work, f"photographs-{count}"), 0, count)
            runs.append(measure(source, Path(work, "datasets")))
    show(runs)


def show(runs: list[Run]) -> None:
    """Print the table."""
    print(f"{'small photographs':>20}{'PSS MiB':>10}{'RSS MiB':>10}{'seconds':>10}{'CPU s':>10}")
    for run in runs:
        cost = run.cost
        print(
            f"{run.num_records:>20,}{cost.peak_pss_bytes / 2**20:>10.0f}"
            f"{cost.peak_rss_bytes / 2**20:>10.0f}{cost.wall_seconds:>10.1f}{cost.cpu_seconds:>10.1f}"
        )
    first, last = runs[0].cost, runs[-1].cost
    print(
        f"growth of the peak: PSS {last.peak_pss_bytes / first.peak_pss_bytes:.2f}, "
        f"RSS {last.peak_rss_bytes / first.peak_rss_bytes:.2f} (aim: at most {_MOST_GROWTH:.2f}, "
        f"and {_MOST_MIB} MiB)"
    )


if __name__ == "__main__":
    main()
