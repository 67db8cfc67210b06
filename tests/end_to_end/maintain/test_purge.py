"""Deletion requests: what is purged leaves every version, does not come back, and leaves no trace."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shardmill.beam_jobs.maintain.purge as working
from shardmill.beam_jobs import job as job_module
from shardmill.beam_jobs.maintain.purge import find_to_purge, purge
from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding
from shardmill.infra.dataset.maintenance.removed import purged_contents
from shardmill.infra.errors import LockedError, NotFoundError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.datasets.contents import outcomes, records
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.runs import Saved, Stopped, problems, run, stopped

ASKED, COPY, CHANGED = "a/00001.jpg", "b/copy.jpg", "a/00002.jpg"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Versions in which the one to go has a copy, is gone, is back as the copy, and as other content."""
    place = tmp_path_factory.mktemp("purge")
    source, root = make_photos(place / "source", {"a": 12, "b": 8}), place / "root"
    shutil.copyfile(source / ASKED, source / COPY)
    run(source, root)
    write(source, {"a/new.jpg": jpeg(700)})
    run(source, root)
    (source / ASKED).unlink()
    run(source, root)
    write(source, {COPY: jpeg(701), ASKED: jpeg(702)})
    run(source, root)
    return Saved(place)


def everything(root: Path) -> bytes:
    """Every byte that lies under the root, tables and records opened up."""
    found = [path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()]
    catalog = Catalog(root)
    for number in catalog.versions("d"):
        version = catalog.open(f"d@{number}")
        found += [image for _, _, image in records(version)]
        tables = [version.inputs(), *(version.index(shard) for shard in version.manifest.shards)]
        if version.manifest.near_duplicates is not None:
            tables.append(version.table(version.manifest.near_duplicates.path))
        found += [str(table.to_pylist()).encode() for table in tables]
    return b"".join(found)


def traces(root: Path, ids: list[str]) -> list[str]:
    """The files that are left of the purged image, except for the block list."""
    text = everything(root)
    return [name for name in (ASKED, *ids) if name.encode() in text.replace(_block_list(root), b"")]


def _block_list(root: Path) -> bytes:
    path = root / "d/purged.json"
    return path.read_bytes() if path.exists() else b"nothing"


def ids_of(root: Path) -> list[str]:
    """The record ids that the one to go ever had."""
    catalog = Catalog(root)
    rows = [outcomes(catalog.open(f"d@{number}")).get(ASKED) for number in catalog.versions("d")]
    return sorted({row[2] for row in rows if row is not None and row[2] is not None})


def test_without_apply_nothing_goes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(root)
    assert cli.run(["purge", "d", "--source", ASKED, "--root", str(root), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["applied"], told["uris"], told["other_uris"]) == (False, [ASKED], [COPY])
    assert told["rows"] == {"1": 2, "2": 2, "3": 1, "4": 1}
    assert everything(root) == before


def test_runs_that_used_what_is_purged_are_named_and_marked(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = root.with_name("runs")
    for name, version in (("first", 1), ("last", 4)):
        config = {"model": {"name": "small_cnn"}, "run": {"epochs": 1}, "optimizer": {"name": "adamw"}}
        (runs / name).mkdir(parents=True)
        (runs / name / "run.json").write_text(json.dumps({"dataset": f"d@{version}", "config": config}))
    command = ["purge", "d", "--source", COPY, "--root", str(root), "--runs", str(runs), "--json"]

    def told(*more: str) -> set[str]:
        assert cli.run([*command, *more]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return {model["run"] for model in found["models"]}

    assert told() == {"first", "last"}
    assert not list(runs.glob("*/purged.json")), "without --apply nothing is marked"
    assert told("--apply") == {"first", "last"}
    marks = {path.parent.name: path.read_text() for path in runs.glob("*/purged.json")}
    assert set(marks) == {"first", "last"}
    assert COPY not in "".join(marks.values())


def test_what_is_purged_is_nowhere(root: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = ids_of(root)
    assert len(ids) == 2
    catalog = Catalog(root)
    before = {number: records(catalog.open(f"d@{number}")) for number in catalog.versions("d")}
    assert set(traces(root, ids)) == {ASKED, *ids}
    assert cli.run(["purge", "d", "--source", str(source / ASKED), "--apply", "--root", str(root)]) == 0
    told = capsys.readouterr().out
    assert f"Purged:\n  {ASKED}\n  {COPY}  (the same bytes)\n" in told
    assert "Not touched: the source itself" in told
    assert traces(root, ids) == []
    for number, held in before.items():
        assert records(catalog.open(f"d@{number}")) == {row for row in held if row[0] not in ids}
    assert COPY in outcomes(catalog.open("d")), "it has other content by now"
    assert problems(root) == []


def test_what_is_gone_already_is_no_error_and_what_was_never_there_is(
    root: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    purge(Catalog(root), "d", [ASKED])
    before = everything(root)
    for named in (ASKED, str(source / ASKED)):
        for more in ([], ["--apply"]):
            assert cli.run(["purge", "d", "--source", named, "--root", str(root), *more]) == 0
            told = capsys.readouterr().out
            assert told == f"Nothing is left of:\n  {named}  (purged before)\n"
    assert everything(root) == before
    assert cli.run(["purge", "d", "--source", "a/never.jpg", "--apply", "--root", str(root)]) == 2
    assert "error: no version of d knows the source 'a/never.jpg'" in capsys.readouterr().err
    found = purge(Catalog(root), "d", [ASKED, CHANGED])
    assert (found.uris, found.gone) == ([CHANGED], [ASKED])
    assert problems(root) == []


def test_an_unfinished_purge_is_said_until_it_is_finished(
    root: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = (
        "warning: a purge of d is not finished: images that it removes may still be there; "
        "`shardmill purge d --apply` finishes it\n"
    )
    prepare = prepare_command(source, root)
    with stopped(working, "_write_reports"):
        purge(Catalog(root), "d", [ASKED])
    for command in ("show", "verify"):
        assert cli.run([command, "d@2", "--root", str(root)]) == 0
        assert capsys.readouterr().err.endswith(warning)
    done = subprocess.run(prepare, capture_output=True, text=True, check=True)
    assert warning in done.stderr
    assert cli.run(["purge", "d", "--source", "a/never.jpg", "--apply", "--root", str(root)]) == 2
    assert cli.run(["purge", "d", "--apply", "--root", str(root)]) == 0
    assert f"Purged:\n  {ASKED}\n" in capsys.readouterr().out
    for command in ("show", "verify"):
        assert cli.run([command, "d@2", "--root", str(root)]) == 0
    done = subprocess.run(prepare, capture_output=True, text=True, check=True)
    assert "warning" not in capsys.readouterr().err + done.stderr
    assert cli.run(["purge", "d", "--apply", "--root", str(root)]) == 2
    assert "no input is named, and no purge of d has to be finished" in capsys.readouterr().err


def test_a_list_from_before_it_knew_uris_is_read(root: Path) -> None:
    purge(Catalog(root), "d", [ASKED])
    listed = json.loads((root / "d/purged.json").read_bytes())
    (root / "d/purged.json").write_text(json.dumps({"sha256": listed["sha256"]}))
    assert {digest.hex() for digest in purged_contents(Storage.at(root / "d"))} == set(listed["sha256"])
    with pytest.raises(NotFoundError):
        purge(Catalog(root), "d", [ASKED])
    purge(Catalog(root), "d", [CHANGED])
    assert purge(Catalog(root), "d", [CHANGED]).gone == [CHANGED]


def test_what_was_purged_does_not_come_back(root: Path, source: Path) -> None:
    content = (source / ASKED).read_bytes()
    purge(Catalog(root), "d", [ASKED])
    write(source, {"b/again.jpg": content})
    done = run(source, root)
    assert not done["unchanged"]
    found = outcomes(Catalog(root).open("d"))
    for uri in (ASKED, "b/again.jpg"):
        assert found[uri][:3] == ("filtered", "purged", None)
    assert hashlib.sha256(content).hexdigest()[:16] not in {
        row[0] for row in records(Catalog(root).open("d"))
    }
    assert run(source, root)["unchanged"]
    write(source, {"b/newest.jpg": jpeg(703)})
    assert run(source, root)["num_encoded"] == 1, "nobody has to find out again"
    assert problems(root) == []


def test_a_shard_may_lose_all_it_has(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 3, "b": 3})
    root = tmp_path / "root"
    run(source, root, shards={"num_shards": 50})
    num_shards = len(Catalog(root).open("d").manifest.shards)
    purge(Catalog(root), "d", [ASKED])
    assert len(Catalog(root).open("d").manifest.shards) == num_shards - 1
    assert problems(root) == []
    purge(Catalog(root), "d", list(outcomes(Catalog(root).open("d"))))
    assert Catalog(root).open("d").manifest.accounting.num_inputs == 0
    assert problems(root) == []


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4, 5))]
)
def test_a_purge_that_is_killed_is_finished_by_the_next(
    seed: int, root: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ids_of(root)
    write(source, {"a/newest.jpg": jpeg(704)})
    with stopped(job_module, "publish"):
        run(source, root)  # its spool knows what is to go
    left = [None] * random.Random(seed).randrange(30)
    for name in ("write_atomic", "delete", "delete_tree"):
        _stop_when_used_up(monkeypatch, name, left)
    with pytest.raises(Stopped):
        purge(Catalog(root), "d", [ASKED])
    monkeypatch.undo()
    if seed % 2:
        run(source, root)
        if (root / "d/purged.json").exists():
            assert not set(ids) & {row[0] for row in records(Catalog(root).open("d"))}, "it is blocked"
    assert purge(Catalog(root), "d", [ASKED]).uris == [ASKED]
    assert traces(root, ids) == []
    assert not (root / "d/purging.json").exists()
    assert problems(root) == []


def _stop_when_used_up(monkeypatch: pytest.MonkeyPatch, name: str, left: list[None]) -> None:
    work = getattr(Storage, name)

    def counted(storage: Storage, *arguments: Any) -> Any:
        if not left:
            raise Stopped
        left.pop()
        return work(storage, *arguments)

    monkeypatch.setattr(Storage, name, counted)


def test_a_purge_waits_for_no_one(root: Path) -> None:
    catalog = Catalog(root)
    with lock_for_adding(catalog.dataset_storage("d"), "d"), pytest.raises(LockedError):
        purge(catalog, "d", [ASKED])
    assert find_to_purge(catalog, "d", [ASKED]).rows, "nothing was done"
