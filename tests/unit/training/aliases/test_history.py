"""The history of an alias: races of promoters, rollbacks, and damaged records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError, CorruptDataError, UsageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases import AliasName, names_an_alias, parse_alias
from shardmill.training.aliases.history import AliasHistory, AliasRecords, list_aliases, rolled_back
from shardmill.training.aliases.record import Action, AliasRecord, this_user
from tests.samples.stores.object_store import serve_with_credentials

NAME = AliasName("photos")


def record(run: str, action: Action = "promoted", **more: object) -> AliasRecord:
    fixed = {"dataset": "photos", "alias": "production", "at": "2026-01-02T03:04:05+00:00", "by": "ann@box"}
    about = {"run": run, "action": action, "trained_on": "photos@1", "verdict": "good"}
    return AliasRecord.model_validate({**fixed, **about, **more})


@pytest.fixture(params=["local", "object store"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "local":
        yield Storage.at(tmp_path / "runs")
        return
    with serve_with_credentials("aliases") as store:
        yield Storage.at(store.location(tmp_path.name))


def test_promoters_who_race_never_lose_a_record(runs: Storage) -> None:
    """Each sees the run that really had the alias before, whoever was first."""
    together = threading.Barrier(4)

    def promote(worker: int) -> None:
        history = AliasHistory(Storage.at(runs.location), NAME)
        together.wait()
        for turn in range(3):

            def decide(earlier: AliasRecords, run: str = f"run-{worker}-{turn}") -> AliasRecord:
                return record(run, predecessor=earlier.sound[-1].run if earlier.sound else None)

            history.add(decide)

    threads = [threading.Thread(target=promote, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = AliasHistory(runs, NAME).read().sound
    assert [each.number for each in found] == list(range(1, 13))
    assert {each.run for each in found} == {
        f"run-{worker}-{turn}" for worker in range(4) for turn in range(3)
    }
    assert [each.predecessor for each in found] == [None, *(each.run for each in found[:-1])]
    assert [str(history.name) for history in list_aliases(runs)] == ["photos@production"]


def test_a_decision_that_was_made_before_adds_nothing(runs: Storage) -> None:
    history = AliasHistory(runs, NAME)
    assert history.current() is None
    first = history.add(lambda earlier: record("a"))
    assert (first.is_new, first.record.number, first.holder) == (True, 1, "a")
    kept = history.add(lambda earlier: record("b", "kept", predecessor="a"))
    assert kept.holder == "a"
    again = history.add(lambda earlier: earlier.sound[0])
    assert (again.is_new, again.record) == (False, first.record)
    assert [each.action for each in history.read().sound] == ["promoted", "kept"]
    assert history.current() == first.record, "the run that was kept out does not count"


def test_what_is_half_written_or_foreign_is_not_seen(tmp_path: Path) -> None:
    history = AliasHistory(Storage.at(tmp_path), NAME)
    history.add(lambda earlier: record("a"))
    folder = tmp_path / "aliases" / "photos" / "production"
    (folder / "000002.json.tmp").write_text("{")
    (folder / "notes.txt").write_text("mine")
    assert [each.run for each in history.read().sound] == ["a"]


@pytest.mark.parametrize(
    ("content", "error", "told"),
    [
        ("{", CorruptDataError, "000002.json cannot be read"),
        ("{}", CorruptDataError, "dataset"),
        ("[]", CorruptDataError, "should be an object"),
        (record("a", format=9).model_dump_json(), CorruptDataError, "was written in format 9"),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, content: str, error: type[Exception], told: str) -> None:
    history = AliasHistory(Storage.at(tmp_path), NAME)
    history.add(lambda earlier: record("a"))
    (tmp_path / "aliases" / "photos" / "production" / "000002.json").write_text(content)
    with pytest.raises(error, match=told):
        history.current()


@pytest.mark.parametrize(
    ("steps", "damaged", "holder", "before"),
    [
        (["a", "b", "c"], 1, "c", "b"),
        (["a", "b", "c"], 2, "c", "unknown"),
        (["a", "b", "c"], 3, "unknown", "unknown"),
        (["a", "-b", "c"], 2, "c", "a"),
        (["a", "b", "-c"], 2, "unknown", "unknown"),
        (["a", "-b", "-c"], 2, "a", None),
        (["a", "b", "c", "<"], 2, "b", "unknown"),
        (["a", "b", "c", "d", "<"], 2, "c", "unknown"),
        (["a", "b", "c", "<"], 1, "b", "unknown"),
    ],
)
def test_a_damaged_record_hides_what_it_alone_tells(
    tmp_path: Path, steps: list[str], damaged: int, holder: str | None, before: str | None
) -> None:
    """The holder and the run before are those of the whole history, or unknown, and never others."""
    folder = tmp_path / "aliases" / "photos" / "production"
    folder.mkdir(parents=True)
    for each in story(*steps):
        (folder / f"{each.number:06d}.json").write_text(each.model_dump_json())
    (folder / f"{damaged:06d}.json").write_text('{"a": 1}')
    found = AliasHistory(Storage.at(tmp_path), NAME).read()
    assert [each.number for each in found.sound] == [n + 1 for n in range(len(steps)) if n + 1 != damaged]
    for read, wanted in ((found.current, holder), (found.before, before)):
        if wanted == "unknown":
            with pytest.raises(CorruptDataError, match=f"{damaged:06d}.json cannot be read|2 is missing"):
                read()
        else:
            answer = read()
            assert (None if answer is None else answer.run) == wanted
    added = AliasHistory(Storage.at(tmp_path), NAME).add(lambda _: record("new"))
    assert added.record.number == len(steps) + 1, "a damaged record keeps its number"


def test_records_of_a_later_release_with_more_fields_are_read(tmp_path: Path) -> None:
    history = AliasHistory(Storage.at(tmp_path), NAME)
    path = tmp_path / "aliases" / "photos" / "production" / "000001.json"
    path.parent.mkdir(parents=True)
    path.write_text(record("a").model_dump_json()[:-1] + ', "mood": "good"}')
    current = history.current()
    assert current is not None
    assert (current.run, current.number) == ("a", 1)


def story(*steps: str) -> list[AliasRecord]:
    """A history: ``a`` promotes the run a, ``-a`` keeps it out, ``<`` rolls back."""
    records: list[AliasRecord] = []
    for number, step in enumerate(steps, 1):
        holder = next((each.run for each in reversed(records) if each.is_move), None)
        if step == "<":
            before = AliasRecords(NAME, records, {}).before()
            assert before is not None
            made = record(before.run, "rolled back", predecessor=holder, restores=before.number)
        else:
            action: Action = "kept" if step.startswith("-") else "promoted"
            made = record(step.removeprefix("-"), action, predecessor=holder)
        records.append(made.model_copy(update={"number": number}))
    return records


@pytest.mark.parametrize(
    ("steps", "before"),
    [
        ([], None),
        (["a"], None),
        (["a", "b"], "a"),
        (["a", "-b"], None),
        (["a", "b", "-c"], "a"),
        (["a", "b", "<"], None),
        (["a", "b", "c", "<"], "a"),
        (["a", "b", "c", "<", "<"], None),
        (["a", "b", "<", "c"], "a"),
        (["a", "b", "<", "c", "<"], None),
        (["a", "b", "a"], "b"),
    ],
)
def test_a_rollback_goes_to_the_run_before(steps: list[str], before: str | None) -> None:
    found = AliasRecords(NAME, story(*steps), {}).before()
    assert (None if found is None else found.run) == before


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8))
def test_rollbacks_retrace_all_promotions(promoted: list[str]) -> None:
    """Each rollback changes the run, and at last the first one is reached."""
    steps: list[str] = list(promoted)
    holders = [promoted[-1]]
    while (before := AliasRecords(NAME, story(*steps), {}).before()) is not None:
        holders.append(before.run)
        steps.append("<")
    distinct = [run for at, run in enumerate(promoted) if at == 0 or promoted[at - 1] != run]
    assert holders == distinct[::-1]


@pytest.mark.parametrize(
    ("steps", "run", "barred"),
    [
        (["a", "b", "<"], "b", True),
        (["a", "b", "<"], "a", False),
        (["a", "b", "<", "c"], "b", True),
        (["a", "b", "<", "b"], "b", False),
        (["a", "b"], "c", False),
    ],
)
def test_a_run_that_was_rolled_back_is_known(steps: list[str], run: str, barred: bool) -> None:
    assert (rolled_back(story(*steps), run) is not None) == barred


@pytest.mark.parametrize(
    ("text", "is_alias"),
    [
        ("photos@production", True),
        ("photos@v-2_b", True),
        ("photos@2", False),
        ("photos@latest", False),
        ("photos", False),
        ("photos@Production", False),
        ("photos@production\n", False),
        ("photos@" + "a" * 51, False),
        ("photos@../x", False),
    ],
)
def test_aliases_are_told_from_versions(text: str, is_alias: bool) -> None:
    assert names_an_alias(text) == is_alias


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: AliasName("photos", "2"), UsageError),
        (lambda: AliasName("photos", "latest"), UsageError),
        (lambda: AliasName("../photos"), ConfigError),
        (lambda: parse_alias("photos@"), UsageError),
    ],
)
def test_names_that_could_leave_the_folder_are_refused(
    make: Callable[[], AliasName], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make()


def test_a_name_alone_means_production() -> None:
    assert parse_alias("photos") == AliasName("photos", "production")


def test_a_service_may_name_the_person_it_acts_for() -> None:
    assert this_user({"SHARDMILL_USER": "ann"}).startswith("ann@")
    assert "@" in this_user({})
