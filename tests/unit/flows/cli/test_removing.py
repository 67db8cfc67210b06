"""``shardmill versions`` and ``rm`` on a dataset of two versions with a run on each."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.maintenance.garbage import collect_garbage, find_garbage
from shardmill.infra.dataset.maintenance.removed import (
    bring_back,
    delete_for_good,
    remove_versions,
    removed_versions,
)
from shardmill.infra.errors import CorruptDataError, NotFoundError
from tests.samples.training.finished_runs import FinishedRuns


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> FinishedRuns:
    made = FinishedRuns(tmp_path_factory.mktemp("removing"), num_judged=4)
    for number in (1, 2):
        made.run(f"set-v{number}-aa", number, lambda rows: rows % 3 != 0)
    return made


def run_json(made: FinishedRuns, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    places = ["--root", str(made.root), "--runs", str(made.runs), "--json"]
    assert cli.run([*arguments, *places]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_versions_are_listed_with_what_trained_on_them(
    made: FinishedRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    run_json(made, capsys, "model", "promote", "set-v2-aa", "--reason", "best")
    found = run_json(made, capsys, "versions", "set")["versions"]
    assert [(entry["version"], entry["state"], entry["runs"]) for entry in found] == [
        (1, "published", ["set-v1-aa"]),
        (2, "published", ["set-v2-aa (set@production)"]),
    ]
    assert cli.run(["versions", "sett", "--root", str(made.root)]) == 2
    assert "did you mean 'set'?" in capsys.readouterr().err


def test_rm_shows_then_removes_then_restores(made: FinishedRuns, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = (made.root / "set/manifests/000001.json").read_bytes()
    shown = run_json(made, capsys, "rm", "set@1")
    assert (shown["applied"], shown["versions"]) == (False, [1])
    assert shown["trained_on"] == {"1": ["set-v1-aa"]}
    assert Catalog(made.root).versions("set") == [1, 2], "without --apply nothing happens"
    places = ["--root", str(made.root), "--runs", str(made.runs)]
    assert cli.run(["rm", "set@1", "--dry-run", *places]) == 0
    assert "Nothing was removed; use --apply to do it" in capsys.readouterr().out

    assert cli.run(["rm", "set@1", "--apply", *places]) == 0
    assert "For 7 days: shardmill rm set@1 --restore --apply brings them back" in capsys.readouterr().out
    assert Catalog(made.root).versions("set") == [2]
    listed = run_json(made, capsys, "versions", "set")["versions"]
    until = datetime.now(UTC) + timedelta(days=7)
    assert listed[0]["state"][:23] == f"removed, kept until {until:%Y-%m-%d}"[:23]
    assert not collect_garbage(Catalog(made.root), "set").files, "its files are kept meanwhile"

    assert run_json(made, capsys, "rm", "set@1", "--restore")["applied"] is False
    assert run_json(made, capsys, "rm", "set@1", "--restore", "--apply")["versions"] == [1]
    assert (made.root / "set/manifests/000001.json").read_bytes() == manifest
    assert Catalog(made.root).open("set@1").missing_files() == []
    assert removed_versions(Catalog(made.root).dataset_storage("set")) == []


def test_a_wrong_name_is_said_once(made: FinishedRuns, capsys: pytest.CaptureFixture[str]) -> None:
    run_json(made, capsys, "model", "promote", "set-v1-aa", "--reason", "first")
    places = ["--root", str(made.root), "--runs", str(made.runs)]
    for name in ("", "a/b"):
        assert cli.run(["versions", name, *places]) == 2
        assert capsys.readouterr().err.count("cannot be used") == 1


@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        (["set@2"], "set@2 is the newest version", "shardmill rollback set@VERSION"),
        (["set@9"], "dataset set has no version 9", "it has: 1, 2"),
        (["set@new"], "@new: give the number of a version", "shardmill versions set"),
        (["set@1", "other@1"], "one dataset at a time", "shardmill rm set@1\n"),
        (["set@1", "set@2", "other"], "one dataset at a time", "shardmill rm set@1 set@2\n"),
        (["sett"], "no dataset 'sett'", "did you mean 'set'?"),
        (["set@1", "--restore", "--apply"], "no such version to bring back", "removed and still kept: none"),
        (["set@1", "--restore"], "no such version to bring back", "removed and still kept: none"),
    ],
)
def test_what_cannot_be_removed_is_refused(
    made: FinishedRuns, arguments: list[str], error: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["rm", *arguments, "--root", str(made.root), "--runs", str(made.runs)]) == 2
    said = capsys.readouterr().err
    assert error in said
    assert remedy in said


def test_a_whole_dataset_goes_and_its_numbers_are_not_given_again(
    made: FinishedRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    run_json(made, capsys, "rm", "set", "--apply")
    catalog = Catalog(made.root)
    assert catalog.datasets() == []
    assert catalog.next_version("set") == 3
    with pytest.raises(NotFoundError, match="it was removed: shardmill versions set tells"):
        catalog.open("set")
    assert find_garbage(catalog, "set").files == []
    bring_back(catalog, "set", [2])
    assert catalog.versions("set") == [2]
    assert run_json(made, capsys, "rm", "set", "--purge", "--apply")["purged"] is True
    kept = removed_versions(catalog.dataset_storage("set"))
    assert [(each.version, each.manifest is None) for each in kept] == [(1, False), (2, True)]


def test_after_the_days_the_files_are_deleted(made: FinishedRuns) -> None:
    catalog = Catalog(made.root)
    storage = catalog.dataset_storage("set")
    remove_versions(catalog, "set", keep_days=0)
    assert find_garbage(catalog, "set").deleted == [1, 2]
    collect_garbage(catalog, "set")
    assert storage.list_files("data") == []
    assert catalog.next_version("set") == 3
    with pytest.raises(NotFoundError, match="no such version to bring back"):
        bring_back(catalog, "set")


def test_a_removal_that_was_killed_is_finished_or_taken_back(made: FinishedRuns) -> None:
    catalog = Catalog(made.root)
    storage = catalog.dataset_storage("set")
    manifest = storage.read_bytes("manifests/000001.json")
    remove_versions(catalog, "set", [1])
    storage.write_atomic("manifests/000001.json", manifest)  # killed before it was deleted
    assert catalog.versions("set") == [1, 2]
    bring_back(catalog, "set", [1])
    assert removed_versions(storage) == []
    remove_versions(catalog, "set", [1])
    delete_for_good(storage)
    assert catalog.versions("set") == [2]


@pytest.mark.parametrize("until", ["soon", "2026-11-27T00:00:00"])
def test_a_record_whose_time_is_damaged_is_named(made: FinishedRuns, until: str) -> None:
    catalog = Catalog(made.root)
    remove_versions(catalog, "set", [1])
    path = made.root / "set/removed/000001.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"until": until}))
    with pytest.raises(CorruptDataError, match=r"000001\.json cannot be read: .* \(until\)"):
        removed_versions(catalog.dataset_storage("set"))
