"""A dataset that is prepared again: what is reused, what heals, and what is cleared away."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import job as job_module
from beam_jobs import versions as versions_module
from beam_jobs.config import PrepareConfig
from beam_jobs.job import run_job
from beam_jobs.request import JobRequest
from beam_jobs.sources import folder as folder_module
from infra.catalog import Catalog
from infra.errors import CorruptDataError, FailureBudgetExceeded, LockedError
from infra.verify import verify
from tests.samples.photos import jpeg, make_photos, write


def run(source: Path, root: Path, **config: Any) -> dict[str, Any]:
    settings = PrepareConfig.model_validate({"runner": {"workers": 2, "block_images": 8}, **config})
    return run_job(JobRequest(source=str(source), dataset="d", root=str(root), config=settings))


def flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def folders(root: Path, name: str) -> set[str]:
    return {path.name for path in (root / "d" / name).iterdir() if path.is_dir()}


def problems(root: Path) -> list[str]:
    catalog = Catalog(root)
    opened = [catalog.open(f"d@{version}") for version in catalog.versions("d")]
    return [problem for version in opened for problem in verify(version).problems]


class Stopped(Exception):
    """Stands for a process that is killed at some point."""


@contextmanager
def stopped(at: object, name: str) -> Iterator[None]:
    """Whatever runs within is stopped when it calls ``name`` of the module ``at``."""

    def stop(*_: object, **__: object) -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at, name, stop)
        with pytest.raises(Stopped):
            yield


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Let the file be there, but not be opened (the superuser, as whom tests may run, may open all)."""
    open_file = os.open

    def refuse(name: Any, *more: Any, **named: Any) -> int:
        if str(name) == str(path):
            raise PermissionError(13, "Permission denied")
        return open_file(name, *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_module.os, "open", refuse)
        yield


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "source", {"a": 14, "b": 8})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


# -- what is damaged is not reused ---------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["train-*.tfrecord.gz", "train-*.parquet"])
def test_a_damaged_shard_of_an_earlier_version_is_written_again(
    pattern: str, source: Path, root: Path
) -> None:
    run(source, root)
    flip_last_byte(next(root.rglob(pattern)))
    run(source, root, seed=1)
    assert len(problems(root)) >= 1, "version 1 is damaged"
    back = run(source, root)
    assert (back["version"], back["reused"]["shards"]) == (3, 2)
    assert problems(root) == [], "the same bytes in the same place mend version 1 too"


def test_a_shard_that_is_damaged_before_the_run_goes_on_is_written_again(source: Path, root: Path) -> None:
    with stopped(job_module, "publish"):
        run(source, root)
    flip_last_byte(next(root.rglob("train-*.tfrecord.gz")))
    assert run(source, root)["reused"]["shards"] == 2
    assert problems(root) == []


def test_a_damaged_table_of_a_block_is_encoded_again(source: Path, root: Path) -> None:
    with stopped(job_module, "publish"):
        run(source, root)
    tables = sorted(root.rglob("blocks/*.arrow"))
    tables[0].write_bytes(b"")
    tables[1].with_suffix(".spool").unlink()  # as after a kill amid the removal of the spool
    assert run(source, root)["reused"]["blocks"] == len(tables) - 2
    assert problems(root) == []


def test_the_report_names_a_damaged_record_and_the_way_out(
    source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_inputs = versions_module._write_inputs

    def damage(storage: Any, work: Any) -> Any:
        shard = work.shards[0]
        (root / "d" / shard.path).write_bytes(b"\0" * shard.num_bytes)
        return write_inputs(storage, work)

    monkeypatch.setattr(versions_module, "_write_inputs", damage)
    with pytest.raises(CorruptDataError, match=r"train-.*tfrecord\.gz at byte \d+: .*nothing was") as caught:
        run(source, root)
    monkeypatch.undo()
    assert "delete this shard and run again" in str(caught.value.remedy)
    run(source, root)
    assert problems(root) == []


@pytest.mark.parametrize("name", ["inputs.parquet", "report.html", "train-*.parquet", "test-*.tfrecord.gz"])
def test_prepare_restores_any_file_that_was_deleted(name: str, source: Path, root: Path) -> None:
    run(source, root)
    (path,) = root.rglob(name)
    before = path.read_bytes()
    path.unlink()
    again = run(source, root)
    assert (again["version"], again["unchanged"]) == (2, False)
    if name != "report.html":  # names its version
        assert path.read_bytes() == before
    assert problems(root) == []
    assert run(source, root)["unchanged"]


# -- what could not be read may heal -------------------------------------------------------------------


def test_a_file_that_can_be_read_again_makes_a_new_version(source: Path, root: Path) -> None:
    with unreadable(source / "a/00001.jpg"):
        first = run(source, root, failure_budget=0.5)
        assert first["quarantine"] == {"unreadable": 1}
        assert run(source, root, failure_budget=0.5)["unchanged"], "it still cannot be read"
    healed = run(source, root, failure_budget=0.5)
    assert (healed["version"], healed["unchanged"], healed["num_quarantined"]) == (2, False, 0)
    assert healed["num_records"] == 22


def test_a_finished_block_with_an_unreadable_file_is_encoded_again(
    source: Path, root: Path, tmp_path: Path
) -> None:
    with unreadable(source / "a/00001.jpg"), pytest.raises(FailureBudgetExceeded):
        run(source, root)
    num_blocks = len(list(root.rglob("blocks/*.arrow")))
    healed = run(source, root)
    assert (healed["num_quarantined"], healed["reused"]["blocks"]) == (0, num_blocks - 1)
    run(source, tmp_path / "undisturbed")
    one, two = (
        {path.name: path.read_bytes() for path in at.rglob("*") if path.suffix in (".gz", ".parquet")}
        for at in (root, tmp_path / "undisturbed")
    )
    assert one == two


# -- clearing away -------------------------------------------------------------------------------------


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


def during(name: str, then: Callable[[], object], at: object = job_module) -> Callable[..., Any]:
    """A stand-in for a function: ``then`` runs, once, in a thread of its own, before it goes on."""
    original = getattr(at, name)
    left = [then]

    def stand_in(*arguments: Any, **named: Any) -> Any:
        if left:
            other = threading.Thread(target=left.pop())
            other.start()
            other.join()
        return original(*arguments, **named)

    return stand_in


@pytest.mark.parametrize("moment", ["list_inputs", "cut_blocks", "account", "check_shards", "publish"])
@pytest.mark.parametrize("interrupted_before", [False, True])
def test_a_run_at_work_keeps_all_it_has_while_another_publishes(
    moment: str, interrupted_before: bool, source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if interrupted_before:
        with stopped(job_module, "publish"):
            run(source, root)
    others: list[dict[str, Any]] = []

    def publish_another() -> None:
        others.append(run(source, root, seed=1))

    monkeypatch.setattr(job_module, moment, during(moment, publish_another))
    done = run(source, root)
    assert [other["version"] for other in others] == [1]
    assert done["version"] == 2
    if interrupted_before:
        assert done["reused"]["images"] == 22
        assert done["reused"]["shards"] == 3
    assert problems(root) == []
    assert folders(root, "spool") == set()
    assert len(folders(root, "data")) == 2


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
    with storage.exclusive_lock(f"spool/{lock.name}"), pytest.raises(LockedError):
        run(source, root)
