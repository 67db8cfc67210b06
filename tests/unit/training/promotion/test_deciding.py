"""Decisions about an alias, on made-up predictions of finished runs."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.errors import DataError, NotFoundError, UsageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases import AliasName
from shardmill.training.aliases.history import AliasHistory, Decision
from shardmill.training.arrays import Ints
from shardmill.training.promotion import deciding
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.results.run_files.run_folder import RunFolder, open_run
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.finished_runs import FinishedRuns

NAME = AliasName("set")
RULES = PromotionRules()


def often(rows: Ints) -> Ints:
    return rows % 10 != 0


def seldom(rows: Ints) -> Ints:
    return rows % 3 != 0


@pytest.fixture
def made(tmp_path: Path) -> FinishedRuns:
    return FinishedRuns(tmp_path)


def promote(made: FinishedRuns, run: RunFolder, rules: PromotionRules = RULES) -> Decision:
    return deciding.promote_by_figures(run, "production", made.runs, str(made.root), rules)


def holder(made: FinishedRuns) -> str | None:
    current = AliasHistory(Storage.at(made.runs), NAME).current()
    return None if current is None else current.run


def test_the_first_model_gets_the_alias_and_its_origin_is_recorded(made: FinishedRuns) -> None:
    found = promote(made, made.run("one", 2, seldom))
    assert (found.is_new, found.holder, found.record.number) == (True, "one", 1)
    assert (found.record.trained_on, found.record.manifest_sha256) == ("set@2", "digest of set@2")
    assert found.record.predecessor is None
    assert open_run("set@production", made.runs).name == "one"
    again = promote(made, open_run("one", made.runs))
    assert (again.is_new, again.holder) == (False, "one")


def test_a_first_model_below_the_floor_does_not(made: FinishedRuns) -> None:
    found = promote(made, made.run("one", 2, seldom), PromotionRules(floor=0.95))
    assert (found.record.action, found.holder) == ("kept", None)
    assert "floor 0.95" in found.record.verdict
    with pytest.raises(NotFoundError, match="has the alias set@production"):
        open_run("set@production", made.runs)


def test_a_better_candidate_takes_over_and_a_worse_one_does_not(made: FinishedRuns) -> None:
    promote(made, made.run("one", 1, seldom, 2))
    better = promote(made, made.run("two", 2, often))
    assert (better.record.action, better.record.predecessor) == ("promoted", "one")
    assert better.record.comparison is not None
    assert better.record.comparison["dataset"] == "set@2"

    worse = promote(made, made.run("three", 2, seldom))
    assert (worse.record.action, worse.holder) == ("kept", "two")
    assert "worse beyond the noise" in worse.record.verdict
    assert promote(made, open_run("three", made.runs)).is_new is False, "the same is not said twice"
    assert [each.run for each in AliasHistory(Storage.at(made.runs), NAME).read().sound] == [
        "one",
        "two",
        "three",
    ]


def test_what_the_champion_has_learned_from_does_not_count(made: FinishedRuns) -> None:
    """Version 2 validates on records that version 1 trained on: the champion knows them by heart."""
    learned = set(made.version(1).rows(made.version(1).shards("train")[0], ["id"])["id"].to_pylist())
    tested = [
        each
        for shard in made.version(2).shards("validation")
        for each in made.version(2).rows(shard, ["id"])["id"].to_pylist()
    ]
    knows = np.array([each in learned for each in tested])
    assert knows.any()
    assert not knows.all()

    def by_heart(rows: Ints) -> Ints:
        return np.array(knows[rows] if rows.size == knows.size else rows < 0)

    promote(made, made.run("one", 1, by_heart, 2))
    found = promote(made, made.run("two", 2, lambda rows: rows % 2 == 0))
    assert found.record.comparison is not None
    assert found.record.comparison["left_out"] == knows.sum()
    assert found.record.comparison["figures"]["accuracy"]["first"] == 0.0, (
        "right only on what it learned from"
    )
    assert found.holder == "two"


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_split_of_the_rules_decides(made: FinishedRuns, split: str) -> None:
    """The candidate is better on validation, which has more records, and worse on the test split."""

    def good_on_validation(rows: Ints) -> Ints:
        return rows % 10 != 0 if rows.size > 40 else rows % 2 != 0

    rules = PromotionRules.model_validate({"split": split})
    promote(made, made.run("one", 1, seldom, 2), rules)
    found = promote(made, made.run("two", 2, good_on_validation), rules)
    assert found.record.comparison is not None
    assert (found.record.comparison["split"], found.record.comparison["times_used"]) == (split, 0)
    assert ("test" in found.record.comparison) == (split == "validation")
    assert found.holder == ("two" if split == "validation" else "one")


def test_a_split_that_decides_again_says_how_often_it_did(made: FinishedRuns) -> None:
    promote(made, made.run("one", 2, seldom))
    promote(made, made.run("two", 2, often))
    third = promote(made, made.run("three", 2, seldom)).record
    assert third.comparison is not None
    assert third.comparison["times_used"] == 1
    assert "which judged 1 other candidate before" in third.verdict


def test_a_dataset_without_validation_asks_for_the_split(made: FinishedRuns) -> None:
    promote(made, made.run("one", 2, seldom))
    run = made.run("two", 2, often)
    made.join_train("validation")
    kept = promote(made, run).record
    assert kept.action == "kept"
    assert "set@3 has no validation split" in kept.verdict


def test_too_few_records_decide_nothing(made: FinishedRuns) -> None:
    promote(made, made.run("one", 2, seldom))
    found = promote(made, made.run("two", 2, often), PromotionRules(minimum_examples=1000))
    assert found.holder == "one"
    assert "minimum_examples = 1000" in found.record.verdict


def test_a_run_that_cannot_be_compared_leaves_the_alias(made: FinishedRuns) -> None:
    promote(made, made.run("one", 2, seldom))
    (made.runs / "one").rename(made.runs / "gone")
    found = promote(made, made.run("two", 2, often))
    assert (found.record.action, found.holder) == ("kept", "one")
    assert "cannot be compared" in found.record.verdict
    by_hand = deciding.promote_by_hand(open_run("two", made.runs), "production", made.runs, "one is lost")
    assert (by_hand.holder, by_hand.record.reason) == ("two", "one is lost")


def test_a_champion_whose_version_is_gone_is_still_beaten(made: FinishedRuns) -> None:
    promote(made, made.run("one", 1, seldom, 2))
    (made.root / "set" / "manifests" / "000001.json").unlink()
    found = promote(made, made.run("two", 2, often))
    assert (found.record.action, found.holder) == ("promoted", "two")
    assert "what one learned from is unknown" in found.record.verdict


def test_a_rollback_stays_until_a_person_decides_otherwise(made: FinishedRuns) -> None:
    promote(made, made.run("one", 2, seldom))
    promote(made, made.run("two", 2, often))
    back = deciding.roll_back(NAME, made.runs, "wrong at night")
    assert (back.record.action, back.holder, back.record.predecessor) == ("rolled back", "one", "two")
    with pytest.raises(NotFoundError, match="no run had the alias set@production before one"):
        deciding.roll_back(NAME, made.runs)

    again = promote(made, open_run("two", made.runs))
    assert (again.record.action, again.holder) == ("kept", "one")
    assert "rolled back" in again.record.verdict
    deciding.promote_by_hand(open_run("two", made.runs), "production", made.runs, "mended")
    assert holder(made) == "two"


def test_a_rollback_to_a_run_that_is_gone_is_refused(made: FinishedRuns) -> None:
    promote(made, made.run("one", 2, seldom))
    promote(made, made.run("two", 2, often))
    (made.runs / "one").rename(made.runs / "gone")
    with pytest.raises(NotFoundError, match="was the run one before, which is not under"):
        deciding.roll_back(NAME, made.runs)
    assert holder(made) == "two"


def test_unfinished_runs_and_empty_reasons_are_refused(made: FinishedRuns) -> None:
    run = made.run("one", 2, seldom)
    with pytest.raises(UsageError, match="reason is empty"):
        deciding.promote_by_hand(run, "production", made.runs, " ")
    (run.path / "result.json").unlink()
    with pytest.raises(DataError, match="unfinished"):
        promote(made, open_run("one", made.runs))
    assert holder(made) is None


def test_candidates_who_race_are_compared_with_the_one_that_won(made: FinishedRuns) -> None:
    """In either order, the better one has the alias at the end."""
    promote(made, made.run("zero", 2, lambda rows: rows % 2 == 0))
    candidates = [made.run("good", 2, seldom), made.run("best", 2, often)]
    together = threading.Barrier(2)

    def race(run: RunFolder) -> None:
        together.wait()
        promote(made, run)

    threads = [threading.Thread(target=race, args=(run,)) for run in candidates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert holder(made) == "best"
    records = AliasHistory(Storage.at(made.runs), NAME).read().sound
    best = next(each for each in records if each.run == "best")
    before = [each for each in records if each.is_move and each.number < best.number][-1]
    assert best.predecessor == before.run


def test_of_several_data_sets_none_may_be_worse(made: FinishedRuns) -> None:
    """The candidate is better on all records together and on the first data set, and worse on the second."""
    counts = {"train": {"a": 4, "b": 4}, "validation": {"a": 20, "b": 20}, "test": {"a": 3}}
    publish(made.root, coloured(counts, size=(8, 9)), name="web")
    own = made.version(2).num_examples("validation")
    refs = ["set@2", "web@1"]

    def better_on_the_first(rows: Ints) -> Ints:
        return np.where(rows < own, rows >= 0, rows % 2 == 0)

    def worse_on_the_first(rows: Ints) -> Ints:
        return np.where(rows < own, rows % 3 == 0, rows % 8 != 0)

    joined = "; ".join(refs)
    champion = made.run("one", joined, worse_on_the_first)
    promote(made, champion)
    assert open_run("set+web@production", made.runs).name == "one"
    candidate = made.run("two", joined, better_on_the_first)
    kept = promote(made, candidate, PromotionRules(no_worse_on_each=True))
    assert kept.holder == "one"
    assert kept.record.verdict.startswith("worse beyond the noise on web@1: accuracy")
    assert "; on set@2 100.0% against 34.0%; on web@1 50.0% against 87.5%" in kept.record.verdict
    assert kept.record.comparison is not None
    assert [*kept.record.comparison["by_data_set"]] == refs
    few = promote(made, candidate, PromotionRules(no_worse_on_each=True, minimum_examples=41))
    assert "web@1 has 40 validation records" in few.record.verdict
    assert promote(made, candidate).holder == "two", "without the rule all records decide"


def test_a_run_with_more_data_in_train_alone_stands_for_the_first(made: FinishedRuns) -> None:
    publish(made.root, coloured({"train": {"a": 9, "b": 9}}, size=(8, 9)), name="synthetic")
    promote(made, made.run("one", 2, seldom))
    found = promote(made, made.run("two", "set@2; train += synthetic@1", often, 2))
    assert (found.holder, holder(made)) == ("two", "two")
    assert found.record.comparison is not None
    assert found.record.comparison["dataset"] == "set@2"


def test_each_of_several_data_sets_must_have_records_to_judge_by(made: FinishedRuns) -> None:
    publish(made.root, coloured({"train": {"a": 9, "b": 9}, "test": {"a": 3}}, size=(8, 9)), name="web")
    promote(made, made.run("one", "set@2; web@1", seldom))
    candidate = made.run("two", "set@2; web@1", often)
    kept = promote(made, candidate, PromotionRules(no_worse_on_each=True))
    assert (kept.holder, "web@1 has 0 validation records" in kept.record.verdict) == ("one", True)
    assert promote(made, candidate).holder == "two"


def test_classes_of_data_in_train_alone_are_no_obstacle(made: FinishedRuns) -> None:
    publish(made.root, coloured({"train": {"a": 9, "odd": 9}}, size=(8, 9)), name="synthetic")
    ref = "set@2; train += synthetic@1"
    promote(made, made.run("one", ref, seldom))
    found = promote(made, made.run("two", ref, often), PromotionRules(no_worse_on_each=True))
    assert found.holder == "two"
    assert found.record.comparison is not None
    assert found.record.comparison["dataset"] == ref
