"""The maintenance of a dataset in one job: compaction, retention, garbage, interrupted work."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs import job as job_module
from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.beam_jobs.maintain.upkeep import maintain
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding
from shardmill.infra.errors import LockedError
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.runs import folders, problems, run, stopped

DAY = 86400


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four versions of four ingests, and the interrupted work of a fifth."""
    source, root = make_photos(tmp_path / "source", {"a": 12, "b": 8}), tmp_path / "root"
    run(source, root)
    for number in range(3):
        write(source, {f"a/new-{number}.jpg": jpeg(700 + number)})
        run(source, root)
    with stopped(job_module, "publish"):
        run(source, root, seed=5)
    return root


def settings(**values: Any) -> MaintainConfig:
    return MaintainConfig.model_validate(values)


def test_a_dataset_is_compacted_and_versions_that_nobody_trained_on_go(root: Path) -> None:
    catalog = Catalog(root)
    before = catalog.open("d")
    done = maintain(catalog, "d", settings(keep_last=1), protected=[2])
    assert (done["compacted"], done["dropped"], done["kept"]) == (5, [1, 3, 4], [2, 5])
    assert len(catalog.open("d").manifest.shards) < len(before.manifest.shards)
    assert catalog.open("d").manifest.accounting == before.manifest.accounting
    assert done["num_files"] > 0
    assert problems(root) == []
    again = maintain(catalog, "d", settings(keep_last=1), protected=[2])
    assert (again["compacted"], again["dropped"], again["num_files"]) == (None, [], 0)


def test_a_dry_run_removes_nothing(root: Path) -> None:
    catalog = Catalog(root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    done = maintain(catalog, "d", settings(keep_last=1, dry_run=True))
    assert (done["compacted"], done["dropped"]) == (5, [1, 2, 3])
    assert sorted(path for path in root.rglob("*") if path.is_file()) == files


def test_unfinished_work_goes_when_it_is_old(root: Path) -> None:
    catalog = Catalog(root)
    assert folders(root, "spool")
    assert maintain(catalog, "d", settings(compact=False))["interrupted"] == []
    for path in (root / "d" / "spool").rglob("*"):
        os.utime(path, (time.time() - 8 * DAY,) * 2)
    done = maintain(catalog, "d", settings(compact=False))
    assert len(done["interrupted"]) == 1
    assert done["interrupted"][0]["num_bytes"] > 0
    assert folders(root, "spool") == set()
    assert problems(root) == []


def test_a_step_that_cannot_be_done_stops_no_other(root: Path) -> None:
    catalog = Catalog(root)
    with (
        lock_for_adding(catalog.dataset_storage("d"), "d"),
        pytest.raises(LockedError, match="making or removing a version of d"),
    ):
        maintain(catalog, "d", settings(keep_last=1))
    assert catalog.versions("d") == [1, 2, 3, 4, 5], "it is compacted, and nothing is dropped"
