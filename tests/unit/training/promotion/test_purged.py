"""Runs that were trained on examples that a purge removes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import CorruptDataError
from shardmill.training.promotion import purged
from shardmill.training.promotion.deciding import promote_by_hand
from shardmill.training.results.run_files.run_folder import open_run
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.finished_runs import FinishedRuns

ALL = [1, 2]


@pytest.fixture
def made(tmp_path: Path) -> FinishedRuns:
    found = FinishedRuns(tmp_path)
    for name, version in (("one", 1), ("two", 2)):
        found.run(name, version, lambda rows: rows >= 0)
    return found


def ids(made: FinishedRuns, version: int, split: str, shard: int = 0) -> list[str]:
    opened = made.version(version)
    found: list[str] = opened.rows(opened.shards(split)[shard], ["id"])["id"].to_pylist()
    return found


def affected(made: FinishedRuns, wanted: set[str], versions: list[int] = ALL) -> dict[str, tuple[int, int]]:
    found = purged.affected_runs(Catalog(made.root), made.runs, "set", wanted, versions)
    return {run.run: (run.num_learned, run.num_shown) for run in found}


def test_runs_are_named_by_what_they_had_of_it(made: FinishedRuns) -> None:
    """The first shard of train of version 1 is one of test in version 2."""
    moved = set(ids(made, 1, "train")[:2])
    assert affected(made, moved) == {"one": (2, 0), "two": (0, 2)}
    assert affected(made, moved | set(ids(made, 2, "train")[:1])) == {"one": (3, 0), "two": (1, 2)}
    assert affected(made, moved, [2]) == {"two": (0, 2)}
    assert affected(made, {"0" * 16}) == {}
    assert purged.affected_runs(Catalog(made.root), made.runs, "other", moved, ALL) == []


def test_another_of_several_data_sets_may_be_gone(made: FinishedRuns) -> None:
    publish(
        made.root,
        coloured({"train": {"a": 4}, "validation": {"b": 2}, "test": {"b": 2}}, size=(8, 9)),
        name="web",
    )
    made.run("both", "web@1; train += set@1", lambda rows: rows >= 0)
    train, tested = ids(made, 1, "train")[:2], ids(made, 1, "test")[:1]
    wanted = {*train, *tested}
    before = affected(made, wanted)
    assert before["both"] == (2, 0), "its test split was not read"
    shutil.rmtree(made.root / "web")
    assert affected(made, wanted) == before


def test_a_mark_stays_and_a_repeated_purge_counts_once(made: FinishedRuns) -> None:
    promote_by_hand(open_run("one", made.runs), "production", made.runs, "the only one")
    first = set(ids(made, 1, "train")[:2])
    found = purged.affected_runs(Catalog(made.root), made.runs, "set", first, ALL)
    assert [run.aliases for run in found] == [("set@production",), ()]
    assert "one (set@production): learned from 2 of them" in [purged.in_words(run) for run in found]
    for _ in range(2):
        purged.mark_runs(made.runs, found, first)
    assert purged.purged_in_words(made.runs / "one") == "trained on 2 purged records"
    assert purged.purged_in_words(made.runs / "two") is None, "it has only been evaluated on them"
    text = (made.runs / "one" / "purged.json").read_text()
    assert not any(each in text for each in first), "nothing of the records is kept"

    purged.mark_runs(made.runs, [], first)
    assert purged.num_purged(made.runs / "one") == 2, "a purge that goes on finds less"


def test_a_damaged_mark_is_named(made: FinishedRuns) -> None:
    (made.runs / "one" / "purged.json").write_text("[]")
    with pytest.raises(CorruptDataError, match="cannot be read"):
        purged.num_purged(made.runs / "one")
