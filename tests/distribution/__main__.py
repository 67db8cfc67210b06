"""Build, check and try a release: ``python -m tests.distribution`` (``make dist``, ``make release``)."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.distribution.building import Refused, build_twice, check, sha256
from tests.distribution.pythons import VERSIONS, find_pythons
from tests.distribution.release import check_release, next_steps
from tests.distribution.trial import Row, Trial
from tests.samples.datasets.published import coloured, publish
from tests.samples.repositories_of_users import ROOT

# TensorFlow, which the demo trains with, has wheels for these.
WITH_TENSORFLOW = ("3.11", "3.12", "3.13")


def main() -> int:
    """Do what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.distribution", description=__doc__)
    parser.add_argument("--pythons", nargs="+", default=VERSIONS, choices=VERSIONS, help="try these versions")
    parser.add_argument("--demo", type=int, default=1, help="how many of them run the demo, newest first")
    parser.add_argument("--release", action="store_true", help="first check that the checkout is a release")
    arguments = parser.parse_args()
    console = Console(highlight=False, markup=False)
    try:
        if arguments.release:
            check_release()
        archives = _archives(ROOT / "dist", console)
        rows = list(_tried(archives, arguments.pythons, arguments.demo, console))
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    table = Table("Python", "what")
    for column in ("MB", "seconds"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row.cells)
    console.print(table)
    if arguments.release:
        console.print(next_steps(archives))
    return 0


def _archives(out: Path, console: Console) -> list[Path]:
    """Build, compare and check the archives of a release; print their digests."""
    shutil.rmtree(out, ignore_errors=True)
    archives = build_twice(out)
    check(archives)
    for path in archives:
        console.print(f"{sha256(path)}  {path.name}  {path.stat().st_size / 1e6:.2f} MB", soft_wrap=True)
    return archives


def _tried(archives: list[Path], versions: Sequence[str], num_demos: int, console: Console) -> Iterator[Row]:
    """Try the archives on each Python, one after the other; say what is done."""
    found = find_pythons(versions)
    demos = [version for version in found if version in WITH_TENSORFLOW][::-1][:num_demos]
    with tempfile.TemporaryDirectory(prefix="dist-") as folder:
        datasets = Path(folder, "datasets")
        counts = {"train": {"cat": 40, "dog": 40}, "test": {"cat": 4, "dog": 4}}
        publish(datasets, coloured(counts, size=(240, 320)))
        for version, python in found.items():
            trial = Trial(version, python, Path(folder, version), datasets)
            for row in trial.rows(archives, with_demo=version in demos):
                console.print("  ".join(row.cells), style="dim", soft_wrap=True)
                yield row
    for version in versions:
        if version not in found:
            yield Row(version, "no interpreter here: not tried")


if __name__ == "__main__":
    sys.exit(main())
