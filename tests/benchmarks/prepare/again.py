"""Measure the cost of preparing a folder again: with nothing new, and with one file in a hundred new.

    python -m tests.benchmarks.prepare.again [--images 100000] [--work DIR]

Whole commands on small photographs: the first build; the same again, when there is nothing to do (aim: at
most 10 seconds on 100 thousand known files); again after one per cent of new files have come (aim: near one
per cent of the first build, beside what a command costs that has nothing to do); and once more with nothing
to do. Bytes are those of files that a command left in the dataset's folder and that were not there before.
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


@dataclass(frozen=True, slots=True)
class Run:
    """One command.

    Attributes:
        title: what it met.
        cost: of the command.
        encoded: photographs that it decoded and encoded.
        num_bytes: of the files that it added to the dataset.
    """

    title: str
    cost: Cost
    encoded: int
    num_bytes: int


def measure(title: str, source: Path, root: Path) -> Run:
    """Run prepare once, on two workers."""
    argv = [sys.executable, "-m", "shardmill.beam_jobs.prepare", str(source), "--dataset", "again"]
    argv += ["--root", str(root), "--json", "--set", "runner.processes=2"]
    before = _files(root)
    cost = run_measured(argv, _REPOSITORY)
    added = {path: size for path, size in _files(root).items() if path not in before}
    outcome = json.loads(cost.output.splitlines()[-1])
    return Run(title, cost, outcome["num_encoded"], sum(added.values()))


def _files(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}


def main() -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument(
        "--work", type=Path, help="folder for photographs and datasets (default: a temporary)"
    )
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=told.work, prefix="prepare-again-") as work:
        source, root = Path(work, "photographs"), Path(work, "datasets")
        make_small_photographs(source, 0, told.images)
        runs = [measure("all of them new", source, root), measure("nothing new", source, root)]
        make_small_photographs(source, told.images, told.images // 100)
        runs += [measure("1 % new", source, root), measure("nothing new", source, root)]
    print(f"{told.images:,} small photographs, whole commands; % of the first")
    print(f"{'':<18}{'seconds':>9}{'%':>7}{'CPU s':>9}{'%':>7}{'encoded':>9}{'%':>7}{'MB':>9}{'%':>7}")
    for run in runs:
        print(f"{run.title:<18}" + "".join(_with_share(run, runs[0])))


def _with_share(run: Run, first: Run) -> list[str]:
    pairs = [
        (f"{run.cost.wall_seconds:.1f}", run.cost.wall_seconds / first.cost.wall_seconds),
        (f"{run.cost.cpu_seconds:.1f}", run.cost.cpu_seconds / first.cost.cpu_seconds),
        (f"{run.encoded:,}", run.encoded / first.encoded),
        (f"{run.num_bytes / 1e6:.2f}", run.num_bytes / first.num_bytes),
    ]
    return [f"{value:>9}{100 * share:>7.1f}" for value, share in pairs]


if __name__ == "__main__":
    main()
