"""Storage formats side by side on the same images: size, writing, reading, random access, memory.

    python -m tests.benchmarks.formats.compare [FOLDER] [--images N] [--rounds N] [--only a,b]

All hold the same stored JPEGs (short side 256, quality 90), but for *raw uint8*, which holds their pixels.
Each is written and read by its own library in a process of one thread. The formats take turns, several
rounds; the best of each figure is shown, since what else the machine does only ever adds.

* *write*: images written a second, from memory, with the flush to disk.
* *scan*: records read a second from end to end. *random*: microseconds a record, 32 asked for at a time. Both
  with the files in the page cache, and *cold*: after the kernel forgot them.
* *examples*: records fetched in random order (a tar in stored order), decoded and cropped to 224, a second.
* *first*: seconds from opening to the first batch of 256 decoded examples.
* *memory*: of the process, above that after its imports; pages of files apart.
* *preload*: all records taken into memory first: seconds, then examples a second, and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.inputs.arguments import REQUIREMENTS, add_folders, comparison_parser, refuse_unknown
from tests.benchmarks.inputs.stored_photographs import make_stored
from tests.benchmarks.measuring.reader_process import QUIET, REPOSITORY, ReaderFailed
from tests.environments import NotInstallable, environment

_TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Stored:
    """A storage format.

    Attributes:
        title: in the table.
        module: name in tests.benchmarks.formats.stores.
        requirements: the list of packages of its environment; None for Shardmill's own.
    """

    title: str
    module: str
    requirements: str | None = None


FORMATS = {
    "files": Stored("JPEG files in folders", "files"),
    "tfrecord": Stored("TFRecord (Shardmill)", "shardmill"),
    "tfrecord-gzip": Stored("TFRecord, gzip (Shardmill)", "shardmill"),
    "arrayrecord": Stored("ArrayRecord", "tables", "formats"),
    "parquet": Stored("Parquet", "tables", "formats"),
    "tar": Stored("WebDataset tar", "streams", "torch"),
    "mds": Stored("MosaicML MDS", "streams", "torch"),
    "lmdb": Stored("LMDB", "tables", "formats"),
    "hdf5": Stored("HDF5", "tables", "formats"),
    "pixels": Stored("raw uint8, memory-mapped", "files"),
}

Figures = dict[str, float]


def measure(name: str, python: Path, work: Path) -> Figures:
    """Write a format once, read it both ways, and remove it.

    Raises:
        ReaderFailed: one of the three processes failed.
    """
    out = work / "formats" / name
    shutil.rmtree(out, ignore_errors=True)
    module = f"tests.benchmarks.formats.stores.{FORMATS[name].module}"
    found: Figures = {}
    try:
        for action in (["write"], ["read"], ["read", "--preload"]):
            argv = [str(python), "-m", module, action[0], name, str(work), str(out), *action[1:]]
            found |= _run(argv)
            if action == ["write"]:
                found["num_bytes"] = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return found


def _run(argv: list[str]) -> Figures:
    done = subprocess.run(
        argv,
        cwd=REPOSITORY,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ReaderFailed((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def row(title: str, rounds: list[Figures]) -> list[str]:
    """Cells of the table: the best of all rounds."""

    def best(key: str) -> float | None:
        values = [figures[key] for figures in rounds if key in figures]
        if not values:
            return None
        return max(values) if key.endswith("per_second") else min(values)

    def shown(value: float | None, form: str = ",.0f") -> str:
        return "none" if value is None else format(value, form)

    def rate(key: str) -> str:
        return shown((best("num_records") or 0) / (best(key) or 1))

    return [
        title,
        shown((best("num_bytes") or 0) / 1e6),
        rate("write_seconds"),
        rate("scan_seconds"),
        rate("cold_scan_seconds"),
        shown(best("random_micros")),
        shown(best("cold_random_micros")),
        shown(best("images_per_second")),
        shown(best("first_seconds"), ".2f"),
        shown((best("memory_bytes") or 0) / 2**20),
        shown(best("preload_seconds"), ".2f"),
        shown(best("preloaded_images_per_second")),
        shown((best("preloaded_memory_bytes") or 0) / 2**20),
    ]


_HEAD = [
    "format", "MB", "write/s", "scan/s", "cold scan/s", "random µs", "cold random µs",
    "examples/s", "first s", "memory MiB", "preload s", "preloaded examples/s", "preloaded MiB",
]  # fmt: skip


def show(rounds: dict[str, list[Figures]], missing: dict[str, str]) -> None:
    """Print the table as Markdown."""
    print(f"| {' | '.join(_HEAD)} |")
    print("|---" + "|---:" * (len(_HEAD) - 1) + "|")
    for name, of_format in rounds.items():
        print(f"| {' | '.join(row(FORMATS[name].title, of_format))} |")
    for name, why in missing.items():
        print(f"| {FORMATS[name].title} | not measured: {why} |")


def _environments(names: list[str], folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """(name -> interpreter, name -> why it cannot be measured)."""
    pythons: dict[str, Path] = {}
    missing: dict[str, str] = {}
    refused: dict[str | None, str] = {None: ""}
    for name in names:
        wanted = FORMATS[name].requirements
        try:
            if refused.get(wanted):
                missing[name] = refused[wanted]
            elif wanted is None:
                pythons[name] = Path(sys.executable)
            else:
                pythons[name] = environment(folder, REQUIREMENTS / f"{wanted}.txt")
        except NotInstallable as why:
            missing[name] = refused[wanted] = str(why)
    return pythons, missing


def _parse() -> argparse.Namespace:
    parser = comparison_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(FORMATS), help="names of formats, with commas")
    add_folders(parser)
    told = parser.parse_args()
    refuse_unknown(parser, told.only, FORMATS, "format")
    return told


def main() -> None:
    """Measure all in turn and print the table."""
    told = _parse()
    names = [name for name in FORMATS if name in told.only.split(",")]
    pythons, missing = _environments(names, told.environments)
    rounds: dict[str, list[Any]] = {name: [] for name in pythons}
    with tempfile.TemporaryDirectory(prefix="formats-") as scratch:
        work = (told.work or Path(scratch, "work")).absolute()
        make_stored(work, told.images, told.folder)
        for turn in range(told.rounds):
            for name, python in pythons.items():
                if name in missing:
                    continue
                try:
                    rounds[name].append(measure(name, python, work))
                except ReaderFailed as why:
                    missing[name] = str(why)
                print(f"{turn + 1} {name}", file=sys.stderr)
    show({name: found for name, found in rounds.items() if name not in missing}, missing)


if __name__ == "__main__":
    main()
