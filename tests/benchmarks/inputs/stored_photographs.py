"""The input of the reading benchmarks: photographs prepared once by Shardmill, in the forms that others take.

::

    <work>/datasets/photographs-none, photographs-gzip     published datasets, one split, eight shards
    <work>/plain/                                          the first of them, exported for other libraries
    <work>/jpegs/<class>/<record id>.jpg                   the same stored JPEGs as files
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.examples import parse_example
from shardmill.infra.format.records import iter_records
from tests.benchmarks.inputs.photo_folders import REPOSITORY, make_photographs
from tests.benchmarks.inputs.photographs import QUALITY, SHORT_SIDE

NUM_SHARDS = 8
CONTAINERS = ("none", "gzip")


def make_stored(work: Path, count: int, folder: Path | None) -> DatasetVersion:
    """Fill ``work``, unless it is full already; the uncompressed version.

    Args:
        count: photographs.
        folder: of photographs to take; without one, they are made up.
    """
    done = work / f"made-of-{count}"
    if not done.exists():
        print(f"Preparing {count:,} photographs in {work}", file=sys.stderr)
        if work.is_dir() and any(work.iterdir()):
            raise SystemExit(f"{work} holds something else: name another folder, or empty it")
        source = make_photographs(work / "source", count, folder)
        for container in CONTAINERS:
            prepare(source, work / "datasets", container)
        version = Catalog(work / "datasets").open("photographs-none")
        export(version, work / "plain")
        _write_files(version, work / "jpegs")
        shutil.rmtree(source)
        done.touch()
    return Catalog(work / "datasets").open("photographs-none")


def prepare(source: Path, root: Path, container: str) -> None:
    """Publish photographs in a folder of datasets, as ``photographs-<container>``, in eight shards."""
    argv = [sys.executable, "-m", "shardmill.beam_jobs.prepare", str(source), "--json"]
    argv += ["--dataset", f"photographs-{container}", "--root", str(root)]
    settings = {
        "image.size": SHORT_SIDE,
        "image.quality": QUALITY,
        "shards.num_shards": NUM_SHARDS,
        "shards.container": container,
        "splits.train": 1.0,
        "splits.validation": 0.0,
        "splits.test": 0.0,
    }
    for key, value in settings.items():
        argv += ["--set", f"{key}={value}"]
    subprocess.run(argv, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)


def _write_files(version: DatasetVersion, folder: Path) -> None:
    for name in version.manifest.classes:
        (folder / name).mkdir(parents=True)
    for shard in version.shards("train"):
        for _, _, payload in iter_records(version.storage, shard.path, version.manifest.container):
            record = parse_example(payload)
            (folder / record.label_name / f"{record.id}.jpg").write_bytes(record.image)
