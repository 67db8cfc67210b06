"""Two processes that make versions of one dataset at once: whole versions, one on top of the other."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs import job as job_module
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.maintenance.garbage import find_garbage
from shardmill.infra.errors import PublishConflict
from tests.samples.datasets.contents import outcomes, records, splits
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.runs import during, problems, run


def started(source: Path, root: Path) -> subprocess.Popen[str]:
    argv = prepare_command(source, root)
    return subprocess.Popen([*argv, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, errors = process.communicate(timeout=240)
    outcome: dict[str, Any] = json.loads(out.splitlines()[-1]) if process.returncode == 0 else {}
    return process.returncode, outcome, errors


def test_two_sources_give_two_versions(tmp_path: Path) -> None:
    root = tmp_path / "root"
    one = make_photos(tmp_path / "one", {"a": 30, "b": 20})
    two = shutil.copytree(one, tmp_path / "two")
    write(two, {"c/other.jpg": jpeg(700), "a/00001.jpg": jpeg(701)})
    processes = [started(source, root) for source in (one, two)]
    ends = [ended(process) for process in processes]
    assert [status for status, _, _ in ends] == [0, 0], [errors for *_, errors in ends]
    catalog = Catalog(root)
    assert catalog.versions("d") == [1, 2]
    assert catalog.open("d@2").manifest.parent == 1
    for source, (_, outcome, _) in zip((one, two), ends, strict=True):
        run(source, tmp_path / f"alone-{source.name}")
        made, alone = (
            catalog.open(f"d@{outcome['version']}"),
            Catalog(tmp_path / f"alone-{source.name}").open("d"),
        )
        assert records(made) == records(alone), "no mixture of the two"
        assert outcomes(made) == outcomes(alone)
    first, second = splits(catalog.open("d@1")), splits(catalog.open("d@2"))
    assert all(second[name] == split for name, split in first.items() if name in second)
    assert problems(root) == []


def test_of_one_source_one_publishes_and_the_other_says_why_not(tmp_path: Path) -> None:
    root, source = tmp_path / "root", make_photos(tmp_path / "source", {"a": 30, "b": 20})
    processes = [started(source, root) for _ in range(2)]
    ends = [ended(process) for process in processes]
    assert Catalog(root).versions("d") == [1]
    for status, outcome, errors in ends:
        assert (status == 0 and outcome["version"] == 1) or (
            status == 4 and "is busy with preparing d" in errors
        )
    assert 0 in [status for status, *_ in ends]
    assert problems(root) == []


def test_who_loses_the_race_plans_on_top_of_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, source = tmp_path / "root", make_photos(tmp_path / "source", {"a": 14, "b": 8})
    run(source, root)
    grown = shutil.copytree(source, tmp_path / "grown")
    write(grown, {"a/other.jpg": jpeg(700)})
    write(source, {"a/new.jpg": jpeg(701)})

    def publish_another() -> None:
        run(grown, root)

    monkeypatch.setattr(job_module, "publish", during(job_module, "publish", publish_another))
    done = run(source, root)
    manifest = Catalog(root).open("d").manifest
    assert (done["version"], manifest.parent) == (3, 2)
    # Of the winner, which is of another source, contents are known by their bytes. The new image was encoded
    # before the race.
    assert (done["known"], done["reused"]["images"]) == ({"files": 0, "contents": 22}, 1)
    assert {row[1] for row in outcomes(Catalog(root).open("d")).values()} == {None}
    assert "a/other.jpg" not in outcomes(Catalog(root).open("d"))
    assert problems(root) == []


def test_who_loses_every_race_gives_up_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, source = tmp_path / "root", make_photos(tmp_path / "source", {"a": 14, "b": 8})

    def lose(*_: object) -> None:
        raise PublishConflict("another writer published it first")

    monkeypatch.setattr(job_module, "publish", lose)
    with pytest.raises(PublishConflict):
        run(source, root)
    monkeypatch.undo()
    assert run(source, root)["reused"]["images"] == 22


def test_who_lost_the_race_leaves_nothing_that_no_version_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, source = tmp_path / "root", make_photos(tmp_path / "source", {"a": 14, "b": 8})

    def publish_the_same_inputs() -> None:
        run(source, root, shards={"container": "none"})

    monkeypatch.setattr(job_module, "publish", during(job_module, "publish", publish_the_same_inputs))
    run(source, root, shards={"container": "gzip"})
    first, second = (Catalog(root).open(f"d@{number}").manifest for number in (1, 2))
    assert first.inputs == second.inputs, "a part that the winner has is inherited"
    assert find_garbage(Catalog(root), "d").files == []
    assert problems(root) == []


def test_what_another_version_names_stays_in_the_folder_of_the_plan(tmp_path: Path) -> None:
    root, source = tmp_path / "root", make_photos(tmp_path / "source", {"a": 14, "b": 8})
    run(source, root, shards={"container": "gzip"})
    write(source, {"a/passing.jpg": jpeg(700)})
    run(source, root, shards={"container": "none"})
    (source / "a/passing.jpg").unlink()
    run(source, root, shards={"container": "none"})
    run(source, root, shards={"container": "gzip"})
    first, _, third, last = (Catalog(root).open(f"d@{number}").manifest for number in (1, 2, 3, 4))
    assert last.plan_digest == first.plan_digest
    assert last.inputs == third.inputs != first.inputs, "the first alone names its part in that folder"
    assert problems(root) == []
    assert find_garbage(Catalog(root), "d").files == []
