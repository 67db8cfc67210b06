"""Checks for each kind of object store: a dataset gets the same files as on a disk, also with two writers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import open_dataset
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.maintenance.garbage import collect_garbage
from shardmill.infra.dataset.publishing import rollback
from shardmill.infra.dataset.verify import verify
from shardmill.infra.errors import LockedError, StorageError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.datasets.contents import outcomes, records, splits
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.races import NUM_RACES, winners


def prepare(source: str, root: str) -> dict[str, Any]:
    """Prepare the dataset ``d`` with small blocks."""
    config = PrepareConfig.model_validate({"runner": {"processes": 2, "block_images": 8}})
    return prepare_version(JobRequest(source=source, dataset="d", root=root, config=config))


def check_life(root: str, tmp_path: Path) -> None:
    """Prepare, grow, read, roll back, compact, collect garbage: as in a local folder, byte for byte."""
    local = tmp_path / "root"
    source = make_photos(tmp_path / "photos", {"a": 14, "b": 8})
    for number in range(3):
        write(source, {f"b/new{number}.jpg": jpeg(700 + number)})
        made, same = prepare(str(source), root), prepare(str(source), str(local))
        assert made["version"] == same["version"] == number + 1
        assert made["num_encoded"] == same["num_encoded"]
    assert prepare(str(source), root)["unchanged"]
    catalog = Catalog(root)
    newest, copy = catalog.open("d@3"), Catalog(local).open("d@3")
    assert [shard.sha256 for shard in newest.manifest.shards] == [
        shard.sha256 for shard in copy.manifest.shards
    ]
    assert _batches(root, "train") == _batches(str(local), "train")
    assert rollback(catalog, "d@1").version == 4
    assert prepare(str(source), root)["version"] == 5
    grown = catalog.open("d@5")
    assert records(grown) == records(newest)
    assert compact(catalog, "d")["num_shards"] < len(grown.manifest.shards)
    compacted = catalog.open("d@6")
    assert records(compacted) == records(grown)
    assert (splits(compacted), outcomes(compacted)) == (splits(grown), outcomes(grown))
    garbage = collect_garbage(catalog, "d", keep_last=1)
    assert (garbage.dropped, catalog.versions("d")) == ([1, 2, 3, 4, 5], [6])
    assert garbage.files
    assert verify(catalog.open("d")).problems == []
    assert prepare(str(source), root)["unchanged"]


def _batches(root: str, split: str) -> list[tuple[list[int], int]]:
    """Labels and sum of the pixels of each batch of an epoch."""
    dataset = open_dataset("d", root=root)
    batches = dataset.batches(split, batch_size=4, image_size=16, seed=3)
    found = [(batch.labels.tolist(), int(batch.images.astype(np.int64).sum())) for batch in batches]
    dataset.close()
    return found


def check_two_prepares(root: str, tmp_path: Path) -> None:
    """Let two commands prepare different sources at once: each makes a version, and both are whole."""
    one = make_photos(tmp_path / "one", {"a": 12, "b": 8})
    two = write(shutil.copytree(one, tmp_path / "two"), {"c/other.jpg": jpeg(700)})
    commands = [[*prepare_command(source, root), "--json"] for source in (one, two)]  # type: ignore[arg-type]
    writers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    ends = [writer.communicate(timeout=240) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], [errors for _, errors in ends]
    catalog = Catalog(root)
    assert sorted(json.loads(out.splitlines()[-1])["version"] for out, _ in ends) == [1, 2]
    assert {catalog.open(f"d@{number}").manifest.source for number in (1, 2)} == {str(one), str(two)}
    assert [verify(catalog.open(f"d@{number}")).problems for number in (1, 2)] == [[], []]


def check_races(location: str, *, processes: bool) -> None:
    """Let two writers create the same files at the same instants: exactly one is told that it did."""
    found = winners(location, processes=processes)
    assert {race: len(won) for race, won in found.items()} == dict.fromkeys(range(NUM_RACES), 1)


def check_missing_bucket(location: str) -> None:
    """A bucket that is not there is named; an empty folder of one that is there is empty."""
    assert Storage.at(location).list_files() == []
    with pytest.raises(StorageError, match="there is no bucket 'misspelt'"):
        Storage.at(location.replace("bucket/", "misspelt/")).list_files()


def check_locks(location: str) -> None:
    """Shared locks go together; an exclusive one excludes all others."""
    one, other = (Storage.at(location) for _ in range(2))
    with one.shared_lock("lock"), other.shared_lock("lock"), pytest.raises(LockedError, match="is busy with"):
        other.exclusive_lock("lock").__enter__()
    with one.exclusive_lock("lock"), pytest.raises(LockedError, match="is busy with"):
        other.shared_lock("lock").__enter__()
