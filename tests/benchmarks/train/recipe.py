"""Accuracy and CPU time of a recipe, by seed and by the devices that train.

    python -m tests.benchmarks.train.recipe SOURCE [--recipe clothing-from-scratch-cpu] [--seeds 0 1 2]
        [--places one cpu:2 workers:2] [--folder DIR] [--set KEY=VALUE ...]

Prepares the images of SOURCE with the recipe, then trains it once for each place and seed, one after the
other, each as a whole command. A place is a value of ``--devices``, or ``workers:N`` for ``--workers N``.
Each finished row is kept in ``rows.jsonl`` of the folder, so that the same command goes on after an
interruption.

* *test*, *validation*: accuracy of the best model.
* *CPU*: the processor time of all processes of a training, also those that evaluate and export.
* *spread*: the lowest and the highest test accuracy of the seeds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from shardmill.training.recipes import recipe_path

DATASET = "recipe"


@dataclass(frozen=True, slots=True)
class Row:
    """One training.

    Attributes:
        place: the devices.
        seed: ``data.seed``.
        test, validation: accuracy.
        cpu_seconds: processor time of all processes.
        seconds: from start to end.
    """

    place: str
    seed: int
    test: float
    validation: float
    cpu_seconds: float
    seconds: float


def lines(rows: Sequence[Row]) -> list[str]:
    """The table: a row for each training, then the spread of each place."""
    found = ["| place | seed | test | validation | CPU, s | s |", "|---|---|---|---|---|---|"]
    found += [
        f"| {row.place} | {row.seed} | {row.test:.2%} | {row.validation:.2%} "
        f"| {row.cpu_seconds:.0f} | {row.seconds:.0f} |"
        for row in rows
    ]
    found += ["", "| place | seeds | spread of test | CPU, s |", "|---|---|---|---|"]
    for place in dict.fromkeys(row.place for row in rows):
        own = [row for row in rows if row.place == place]
        tests, times = [row.test for row in own], [row.cpu_seconds for row in own]
        found.append(
            f"| {place} | {len(own)} | {min(tests):.2%} to {max(tests):.2%} "
            f"| {min(times):.0f} to {max(times):.0f} |"
        )
    return found


def devices_of(place: str) -> list[str]:
    """The arguments of the command that choose the devices of a place."""
    name, _, number = place.partition(":")
    return ["--workers", number] if name == "workers" else ["--devices", place]


def train(folder: Path, recipe: str, place: str, seed: int, settings: Sequence[str]) -> Row:
    """Train once."""
    argv = [sys.executable, "-m", "shardmill.training.train", DATASET, "--recipe", recipe, "--json"]
    argv += ["--root", str(folder / "datasets"), "--runs", str(folder / f"runs-{place.replace(':', '-')}")]
    argv += devices_of(place)
    argv += [word for setting in (f"data.seed={seed}", *settings) for word in ("--set", setting)]
    started, before = time.monotonic(), _cpu_of_children()
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    cpu, seconds = _cpu_of_children() - before, time.monotonic() - started
    metrics = json.loads(done.stdout.splitlines()[-1])["metrics"]
    return Row(place, seed, metrics["test"]["accuracy"], metrics["validation"]["accuracy"], cpu, seconds)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Train all that is not done yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--recipe", default="clothing-from-scratch-cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--places", nargs="+", default=["one", "cpu:2", "workers:2"])
    parser.add_argument("--folder", type=Path, help="keeps dataset, runs and rows (default: thrown away)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of [train]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.folder or Path(scratch)).absolute()
        prepare = [
            sys.executable,
            "-m",
            "shardmill.beam_jobs.prepare",
            str(arguments.source),
            "--dataset",
            DATASET,
        ]
        prepare += ["--root", str(folder / "datasets"), "--config", str(recipe_path(arguments.recipe))]
        subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)
        kept = folder / "rows.jsonl"
        rows = [Row(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
        done = {(row.place, row.seed) for row in rows}
        for place in arguments.places:
            for seed in arguments.seeds:
                if (place, seed) in done:
                    continue
                rows.append(train(folder, arguments.recipe, place, seed, arguments.set))
                with kept.open("a") as file:
                    file.write(json.dumps(asdict(rows[-1])) + "\n")
                print("\n".join(lines(rows)), flush=True)
        print("\n".join(lines(rows)))


if __name__ == "__main__":
    main()
