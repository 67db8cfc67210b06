"""Files that are cleared away once a version is published, and files that stay for other runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs import job as job_module
from shardmill.beam_jobs.encode import stage as encode_stage
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_run
from shardmill.infra.errors import FailureBudgetExceeded, LockedError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.runs import Stopped, during, folders, problems, run, stopped

MOMENTS = ("list_inputs", "cut_blocks", "account_and_write", "check_shards", "publish")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "source", {"a": 14, "b": 8})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def test_the_data_of_a_plan_that_was_never_published_goes(source: Path, root: Path) -> None:
    with stopped(job_module, "publish"):
        run(source, root)
    (orphan,) = folders(root, "data")
    (root / "d/data" / orphan / ".partial-0").write_bytes(b"of a writer that was killed")
    write(source, {"a/new.jpg": jpeg(700)})
    run(source, root)
    assert len(folders(root, "data")) == 1
    assert orphan not in folders(root, "data")
    assert problems(root) == []


def test_what_another_configuration_left_goes_with_the_next_version(source: Path, root: Path) -> None:
    write(source, {"a/broken.jpg": b"no image"})
    with pytest.raises(FailureBudgetExceeded):
        run(source, root)
    with stopped(job_module, "publish"):
        run(source, root, seed=1, failure_budget=0.5)
    assert len(folders(root, "spool")) == 2
    run(source, root, seed=2, failure_budget=0.5)
    assert folders(root, "spool") == set()
    assert len(folders(root, "data")) == 1
    assert problems(root) == []


def test_what_is_published_stays_whoever_clears(source: Path, root: Path) -> None:
    # Killed between publishing and clearing: its spool still names the plan that is published by now.
    with stopped(job_module.RunClaim, "clear"):
        run(source, root)
    published = folders(root, "data")
    assert len(folders(root, "spool")) == 1
    run(source, root, seed=1)
    assert folders(root, "spool") == set()
    assert published < folders(root, "data")
    assert problems(root) == []


@pytest.mark.parametrize(
    ("moment", "interrupted_before"),
    [
        ("list_inputs", False),
        ("cut_blocks", True),
        ("publish", False),
        *(
            pytest.param(moment, before, marks=pytest.mark.slow)
            for moment in MOMENTS
            for before in (False, True)
            if (moment, before) not in (("list_inputs", False), ("cut_blocks", True), ("publish", False))
        ),
    ],
)
def test_a_run_at_work_keeps_all_it_has_while_another_publishes(
    moment: str, interrupted_before: bool, source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if interrupted_before:
        with stopped(job_module, "publish"):
            run(source, root)
    others: list[dict[str, Any]] = []

    def publish_another() -> None:
        others.append(run(source, root, image={"quality": 80}))  # of which nothing can be inherited

    module = encode_stage if moment == "cut_blocks" else job_module
    monkeypatch.setattr(module, moment, during(module, moment, publish_another))
    done = run(source, root)
    assert [other["version"] for other in others] == [1]
    assert done["version"] == 2
    if interrupted_before:
        assert done["reused"]["images"] == 22
        assert done["reused"]["shards"] == 3
    assert problems(root) == []
    assert folders(root, "spool") == set()
    assert len(folders(root, "data")) == 2


def test_of_two_that_take_one_number_both_are_published(
    source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish_another() -> None:
        run(source, root, seed=1)

    monkeypatch.setattr(Catalog, "publish", during(Catalog, "publish", publish_another))
    done = run(source, root)
    manifest = Catalog(root).open("d").manifest
    assert (done["version"], manifest.parent, manifest.config["seed"]) == (2, 1, 0)
    assert "d@2" in (root / "d" / str(manifest.report)).read_text()
    assert problems(root) == []


def test_a_run_waits_a_moment_for_a_clean_up_that_holds_its_lock(source: Path, root: Path) -> None:
    run(source, root)
    (lock,) = (root / "d/spool").iterdir()
    write(source, {"a/new.jpg": jpeg(700)})
    holding, storage = threading.Event(), Catalog(root).dataset_storage("d")

    def hold() -> None:
        with lock_for_run(storage, f"spool/{lock.name}"):
            holding.set()
            time.sleep(0.5)

    other = threading.Thread(target=hold)
    other.start()
    assert holding.wait(10)
    assert run(source, root)["version"] == 2
    other.join()


@pytest.mark.parametrize("calls", [1, *(pytest.param(calls, marks=pytest.mark.slow) for calls in (2, 3)), 4])
def test_a_clean_up_that_is_killed_leaves_nothing_that_misleads(
    calls: int, source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stopped(job_module, "publish"):
        run(source, root)
    with stopped(job_module, "publish"):
        run(source, root, seed=1)
    # In turn: the run's own spool, then the data and the spool of each of the others.
    delete_tree, left = Storage.delete_tree, [None] * calls

    def half(storage: Storage, path: str) -> None:
        left.pop()
        if not left:
            files = storage.list_files(path)
            for entry in files[::2]:
                storage.delete(entry.path)
            raise Stopped
        delete_tree(storage, path)

    monkeypatch.setattr(Storage, "delete_tree", half)
    with pytest.raises(Stopped):
        run(source, root, seed=2)
    monkeypatch.undo()
    for seed in (0, 1):
        run(source, root, seed=seed)
    assert problems(root) == []
    assert folders(root, "spool") == set()
    assert len(folders(root, "data")) == 3


def test_a_manifest_that_cannot_be_read_stops_the_clearing_not_the_run(source: Path, root: Path) -> None:
    run(source, root, seed=1)
    run(source, root, seed=2)
    with stopped(job_module, "publish"):
        run(source, root, seed=3)
    (root / "d/manifests/000001.json").write_bytes(b"damaged")
    assert run(source, root, seed=4)["version"] == 3
    assert len(folders(root, "data")) == 4, "what may be named by a manifest is left alone"


def test_the_lock_outlives_the_work_and_counts_for_nothing(source: Path, root: Path) -> None:
    run(source, root)
    (lock,) = (root / "d/spool").iterdir()
    identity = lock.stat().st_ino
    write(source, {"a/new.jpg": jpeg(700)})
    run(source, root)
    assert lock.stat().st_ino == identity, "removing it would let two processes lock two files of one name"
    storage = Catalog(root).dataset_storage("d")
    write(source, {"a/newer.jpg": jpeg(701)})
    with lock_for_run(storage, f"spool/{lock.name}"), pytest.raises(LockedError):
        run(source, root)
