"""Compare the rate of prepare from archives and Parquet files with the same images in folders.

    python -m tests.benchmarks.prepare.sources FOLDER [--photos N] [--forms FORM ...] [--repeats N]

N photos of the folder, evenly chosen, are written anew as class folders, one plain tar, one tar.gz, one zip,
and one Parquet file of embedded bytes. Every form becomes a published version by ``python -m
shardmill.beam_jobs.prepare``, in turn, several times, each in an order of its own. Figures are medians; the
ratios to folders are taken within a turn. Other work on the machine slows all of them, so trust the ratios,
and the CPU seconds more than the clock.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.prepare.rate import Run, measure_prepare, photo_paths

FORMS = {
    "folders": [],
    "tar": ["--source-kind", "archive"],
    "tar.gz": ["--source-kind", "archive"],
    "zip": ["--source-kind", "archive"],
    "parquet": ["--source-kind", "parquet"],
}
_ROW_GROUP = 256


def make_inputs(source: Path, place: Path, count: int) -> int:
    """Write the photos of a folder in every form; returns how many there are."""
    paths = photo_paths(source)
    step = max(1, len(paths) // count)
    names = {path.relative_to(source).as_posix(): path for path in paths[::step][:count]}
    for form in FORMS:
        (place / form).mkdir(parents=True)
    for name, path in names.items():
        (place / "folders" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place / "folders" / name)
    for form, mode in (("tar", "w"), ("tar.gz", "w:gz")):
        with tarfile.open(place / form / f"photos.{form}", mode) as tar:  # type: ignore[call-overload]
            for name, path in names.items():
                tar.add(path, name)
    with zipfile.ZipFile(place / "zip" / "photos.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in names.items():
            archive.write(path, name)
    table = pa.table(
        {
            "image": pa.array([path.read_bytes() for path in names.values()], pa.binary()),
            "label": [Path(name).parent.name for name in names],
            "split": [name.split("/")[0] for name in names],
        }
    )
    pq.write_table(table, place / "parquet" / "photos.parquet", row_group_size=_ROW_GROUP)
    return len(names)


def measure(
    place: Path, forms: Sequence[str], repeats: int, workers: int
) -> dict[str, list[tuple[Run, Run, dict[str, Any]]]]:
    """Prepare every form in each turn, in a random order."""
    turns: dict[str, list[tuple[Run, Run, dict[str, Any]]]] = {form: [] for form in forms}
    order = random.Random(7)
    for turn in range(repeats):
        for form in order.sample(forms, len(forms)):
            root = place / f"root-{turn}-{form}"
            turns[form].append(measure_prepare(place / form, root, workers, FORMS[form]))
            shutil.rmtree(root)
    return turns


def show(turns: dict[str, list[tuple[Run, Run, dict[str, Any]]]]) -> None:
    """Print the table."""
    columns = f"{'CPU s':>8}{'of folders':>12}{'list s':>8}{'MiB':>6}{'records':>9}"
    print(f"{'':<10}{'images/s':>10}{'of folders':>12}{columns}")
    folders = [inner for inner, _, _ in turns["folders"]]
    for form, measured in turns.items():
        runs = [inner for inner, _, _ in measured]
        rate = statistics.median(run.per_second for run in runs)
        cpu = statistics.median(run.cpu_seconds for run in runs)
        listing = statistics.median(outcome["stage_seconds"]["list"] for *_, outcome in measured)
        memory = max(outcome["peak_memory_bytes"] for *_, outcome in measured) / 2**20
        records = {outcome["num_records"] for *_, outcome in measured}
        rates = _ratio([run.per_second for run in runs], [run.per_second for run in folders])
        costs = _ratio([run.cpu_seconds for run in runs], [run.cpu_seconds for run in folders])
        columns = f"{cpu:>8.1f}{costs:>12.2f}{listing:>8.2f}{memory:>6.0f}{max(records):>9,}"
        print(f"{form:<10}{rate:>10,.0f}{rates:>12.2f}{columns}")


def _ratio(values: Sequence[float], bases: Sequence[float]) -> float:
    return statistics.median(value / base for value, base in zip(values, bases, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="an image folder")
    parser.add_argument("--photos", type=int, default=5000)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="folders among them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prepare-sources-") as scratch:
        place = Path(scratch)
        count = make_inputs(arguments.folder, place, arguments.photos)
        turns = measure(place, arguments.forms, arguments.repeats, arguments.workers)
    print(
        f"{count:,} photos, {arguments.workers} workers, medians of {arguments.repeats} turns; start-up apart"
    )
    show(turns)


if __name__ == "__main__":
    main()
