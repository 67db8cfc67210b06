"""Published versions are rolled back or dropped, with their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs import job as job_module
from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding, lock_for_removing
from shardmill.infra.dataset.maintenance import garbage as garbage_module
from shardmill.infra.dataset.maintenance.garbage import collect_garbage, find_garbage
from shardmill.infra.dataset.publishing import rollback
from shardmill.infra.errors import ConfigError, CorruptDataError, LockedError, NotFoundError, UsageError
from tests.samples.datasets.contents import records
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.runs import Saved, Stopped, problems, run, stopped


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Three versions: the second has a file more, the third another, and one of the first is gone."""
    place = tmp_path_factory.mktemp("upkeep")
    source, root = make_photos(place / "source", {"a": 9, "b": 6}), place / "root"
    run(source, root)
    write(source, {"a/new.jpg": jpeg(700)})
    run(source, root)
    write(source, {"a/newer.jpg": jpeg(701)})
    (source / "b/00001.jpg").unlink()
    run(source, root)
    return Saved(place)


def command(capsys: pytest.CaptureFixture[str], root: Path, *argv: str) -> dict[str, Any]:
    assert cli.run([*argv, "--root", str(root), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def files(root: Path) -> set[str]:
    data = root / "d"
    return {str(path.relative_to(data)) for path in (data / "data").rglob("*") if path.is_file()}


# -- rollback --------------------------------------------------------------------------------------------


def test_a_rollback_is_a_version_of_its_own(
    root: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(root)
    assert command(capsys, root, "rollback", "d@1") == {"dataset": "d", "version": 4, "restores": 1}
    catalog = Catalog(root)
    newest, first = catalog.open("d"), catalog.open("d@1")
    assert (newest.version, newest.manifest.parent, newest.manifest.restores) == (4, 3, 1)
    assert records(newest) == records(first)
    assert files(root) == before, "nothing is copied"
    assert problems(root) == []
    onward = run(source, root)
    assert (onward["version"], onward["num_encoded"]) == (5, 2), "the source is as it is"
    assert records(catalog.open("d")) == records(catalog.open("d@3"))


def test_rollbacks_that_cannot_be(root: Path) -> None:
    catalog = Catalog(root)
    with pytest.raises(UsageError, match="d@3 is the newest version already"):
        rollback(catalog, "d@3")
    with pytest.raises(NotFoundError, match="no version '9'"):
        rollback(catalog, "d@9")
    shard = catalog.open("d@1").manifest.shards[0]
    (root / "d" / shard.path).unlink()
    with pytest.raises(CorruptDataError, match=r"d@1 is not whole: .* is not as it was written"):
        rollback(catalog, "d@1")


# -- garbage ---------------------------------------------------------------------------------------------


def test_without_apply_nothing_goes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(root)
    found = command(capsys, root, "gc", "d", "--keep-last", "1")
    assert (found["applied"], found["dropped"], found["kept"]) == (False, [1, 2], [3])
    assert found["num_files"] > 0
    assert files(root) == before
    assert Catalog(root).versions("d") == [1, 2, 3]
    assert cli.run(["gc", "d", "--keep-last", "1", "--root", str(root)]) == 0
    told = capsys.readouterr().out
    assert "Would remove d@1, d@2 and" in told
    assert "Nothing was removed" in told


@pytest.mark.parametrize(
    ("argv", "kept"), [(["--keep-last", "1"], [3]), (["--drop", "2"], [1, 3]), (["--drop", "1"], [2, 3])]
)
def test_what_goes_is_what_no_kept_version_needs(
    argv: list[str], kept: list[int], root: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = Catalog(root)
    held = {version: records(catalog.open(f"d@{version}")) for version in kept}
    needed = {path for version in kept for path in catalog.open(f"d@{version}").manifest.files()}
    found = command(capsys, root, "gc", "d", *argv, "--apply")
    assert (found["applied"], found["kept"]) == (True, kept)
    assert catalog.versions("d") == kept
    assert files(root) == needed
    assert all(any(folder.iterdir()) for folder in (root / "d/data").iterdir()), "empty folders go"
    assert {version: records(catalog.open(f"d@{version}")) for version in kept} == held
    assert problems(root) == []
    write(source, {"a/newest.jpg": jpeg(702)})
    assert run(source, root)["version"] == 4
    assert problems(root) == []


def test_garbage_that_cannot_be(root: Path) -> None:
    catalog = Catalog(root)
    for wrong in ({"drop": [3]}, {"keep_last": 0}):
        with pytest.raises(UsageError, match="d@3 is the newest version, which stays"):
            collect_garbage(catalog, "d", **wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="dataset d has no version 7"):
        collect_garbage(catalog, "d", drop=[7])
    with pytest.raises(NotFoundError, match="did you mean"):
        find_garbage(catalog, "dd")


def test_a_manifest_that_cannot_be_read_stops_the_collection(root: Path) -> None:
    (root / "d/manifests/000002.json").write_bytes(b"damaged")
    before = files(root)
    with pytest.raises(CorruptDataError):
        collect_garbage(Catalog(root), "d")
    assert files(root) == before
    assert collect_garbage(Catalog(root), "d", drop=[2]).dropped == [2], "it may go itself"


def test_what_an_interrupted_run_goes_on_from_stays(
    root: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(source, {"a/newest.jpg": jpeg(702)})
    with stopped(job_module, "publish"):
        run(source, root)
    found = command(capsys, root, "gc", "d", "--keep-last", "1", "--apply")
    assert len(found["in_work"]) == 1
    done = run(source, root)
    assert (done["reused"]["images"], done["reused"]["shards"]) == (1, 1)
    assert problems(root) == []


def test_a_collection_that_is_killed_is_finished_by_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(garbage_module, "remove_files", stop)
    with pytest.raises(Stopped):
        collect_garbage(Catalog(root), "d", keep_last=1)
    monkeypatch.undo()
    assert Catalog(root).versions("d") == [3]
    assert problems(root) == []
    assert collect_garbage(Catalog(root), "d").files
    assert files(root) == set(Catalog(root).open("d").manifest.files())


def test_who_removes_and_who_adds_exclude_each_other(root: Path, source: Path) -> None:
    catalog = Catalog(root)
    storage = catalog.dataset_storage("d")
    write(source, {"a/newest.jpg": jpeg(702)})
    with lock_for_removing(storage, "d"):
        with pytest.raises(LockedError, match="removing parts of d"):
            run(source, root)
        with pytest.raises(LockedError):
            rollback(catalog, "d@1")
    with lock_for_adding(storage, "d"):
        assert rollback(catalog, "d@1").version == 4, "who adds does not exclude who adds"
        with pytest.raises(LockedError, match="making or removing a version of d"):
            collect_garbage(catalog, "d")
    assert collect_garbage(catalog, "d").dropped == []


@pytest.mark.parametrize("argv", [["gc"], ["compact"], ["purge", "--source", "a/new.jpg"]])
def test_what_works_on_a_dataset_takes_no_version(
    argv: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([argv[0], "d@1", *argv[1:], "--root", str(root)]) == 2
    assert "d@1 names a version" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="cannot be used"):
        find_garbage(Catalog(root), "d@1")
