"""Decisions of people: what is in force, and that no append is lost, doubled or torn."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.decisions import Decision, DecisionLog, Decisions
from shardmill.infra.errors import CorruptDataError, DataError
from shardmill.infra.progress import subscribe
from shardmill.infra.storage.filesystem import Storage
from tests.samples.stores.object_store import KEY, SECRET, ObjectStore, serve


def made(number: int, decision: str = "keep", record: int = 0, **more: Any) -> Decision:
    return Decision(f"k{number}", f"{record:016x}", decision, "ada", **more)  # type: ignore[arg-type]


def in_force(rows: list[Decision]) -> dict[int, str]:
    return {int(record, 16): row.key for record, row in Decisions(rows).current.items()}


def test_a_later_decision_counts_and_undo_brings_the_one_before_back() -> None:
    rows = [made(1), made(2, "relabel", to="cat"), made(3, record=7)]
    assert in_force(rows) == {0: "k2", 7: "k3"}
    rows += [made(4, "undo"), made(5, "undo", record=7), made(6, "undo", record=7)]
    assert in_force(rows) == {0: "k1"}
    assert in_force([*rows, made(7, "exclude", record=7)]) == {0: "k1", 7: "k7"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"record": "../../etc/passwd"}, "no record id"),
        ({"record": "0" * 15 + "G"}, "no record id"),
        ({"key": ""}, "no key"),
        ({"decision": "delete"}, "'delete' is no decision"),
        ({"decision": "relabel"}, "new class ''"),
        ({"decision": "relabel", "to": " "}, "new class"),
        ({"decision": "relabel", "to": "a\nb"}, "one line"),
        ({"to": "cat"}, "decision keep"),
        ({"by": " "}, "nobody"),
        ({"by": "a\x00"}, "by of the decision"),
        ({"reason": "x" * 501}, "reason of the decision"),
        ({"number": "1"}, "another type"),
        ({"was": None}, "another type"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(wrong: dict[str, Any], words: str) -> None:
    good = {"key": "k", "record": "0" * 16, "decision": "keep", "by": "ada"}
    with pytest.raises(DataError, match=words):
        Decision(**{**good, **wrong})


def test_any_number_of_appends_is_read_again_by_another_process(tmp_path: Path) -> None:
    storage, draw = Storage.at(tmp_path), random.Random(0)
    sent, writers = [], [DecisionLog(storage), DecisionLog(storage)]
    late = DecisionLog(storage)
    for number in range(70):
        new = [made(100 * number + at, record=number) for at in range(draw.randint(1, 3))]
        sent += new
        assert draw.choice(writers).append(new).added[0].number == number + 1
        if draw.random() < 0.2:
            assert [row.key for row in late.read().rows] == [row.key for row in sent]
    for log in (*writers, late, DecisionLog(storage)):
        assert [row.key for row in log.read().rows] == [row.key for row in sent]


def test_a_decision_that_is_sent_again_is_there_once(tmp_path: Path) -> None:
    log = DecisionLog(Storage.at(tmp_path))
    first = log.append([made(1), made(1)])
    again = DecisionLog(Storage.at(tmp_path)).append([made(1)])
    assert (len(first.added), list(again.added), again.repeated) == (1, [], list(first.added))
    with pytest.raises(DataError, match="k1 stands for keep"):
        log.append([made(1, "exclude")])
    assert len(log.read().rows) == 1


def test_a_reviewer_who_has_not_seen_the_decision_of_another_is_told(tmp_path: Path) -> None:
    ada, bob = (DecisionLog(Storage.at(tmp_path)) for _ in range(2))
    name = f"{0:016x}"
    ada.append([made(1)], {name: None})
    other = bob.append([made(2, "exclude"), made(3, record=5)], {name: None, f"{5:016x}": None})
    assert [row.key for row in other.added] == ["k3"]
    assert {record: row and row.key for record, row in other.overtaken.items()} == {name: "k1"}
    assert bob.append([made(2, "exclude")], {name: "k1"}).added
    assert ada.read().current[name].key == "k2"
    assert not ada.append([made(4, "undo")], {name: "k1"}).added


def test_a_hundred_thousand_decisions_are_read_from_few_files(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    many = [made(number, "relabel", number % 50_000, to=f"class {number % 7}") for number in range(100_000)]
    log = DecisionLog(storage)
    log.append(many)
    for number in range(3):
        log.append([made(100_000 + number, "undo", number)])
    found = DecisionLog(storage).read()
    assert (len(found.rows), len(found.current)) == (100_003, 50_000)
    assert found.current[f"{0:016x}"].key == "k0"
    assert found.current[f"{3:016x}"].key == "k50003"


def test_torn_and_altered_files_are_named_and_no_sound_decision_is_lost_without_them(tmp_path: Path) -> None:
    log = DecisionLog(Storage.at(tmp_path))
    for number in range(1, 7):
        log.append([made(number, record=number)])
    file = tmp_path / "decisions" / "000006.json"  # it repeats 5, and 4 repeats 1 to 4
    whole = file.read_bytes()
    draw = random.Random(1)
    altered = [whole[:at] for at in draw.sample(range(len(whole)), 20)]
    altered += [whole.replace(b"keep", b"undo"), whole.replace(b'"number":6}', b'"number":5}'), b"[]", b"{}"]
    altered += [bytes(draw.randbytes(50)) for _ in range(5)]
    for data in altered:
        file.write_bytes(data)
        with pytest.raises(CorruptDataError, match=r"000006\.json"):
            DecisionLog(Storage.at(tmp_path)).read()
    file.unlink()
    assert len(DecisionLog(Storage.at(tmp_path)).read().rows) == 5
    file.write_bytes(whole)
    (tmp_path / "decisions" / "000004.json").unlink()
    said: list[str] = []
    stop = subscribe(lambda event: said.append(str(event.get("message"))))
    rows = DecisionLog(Storage.at(tmp_path)).read().rows
    stop()
    assert [row.key for row in rows] == ["k1", "k2", "k3", "k5", "k6"]
    assert any("000004.json is missing" in message for message in said)


def test_a_decision_is_added_behind_a_gap(tmp_path: Path) -> None:
    """A process that has read the first file alone would add its own in the place of the missing one."""
    log, other = DecisionLog(Storage.at(tmp_path)), DecisionLog(Storage.at(tmp_path))
    log.append([made(1, record=1)])
    for number in (2, 3):
        other.append([made(number, record=number)])
    (tmp_path / "decisions" / "000002.json").unlink()
    log.append([made(4, record=4)])
    assert [row.key for row in DecisionLog(Storage.at(tmp_path)).read().rows] == ["k1", "k3", "k4"]


WRITER = """
import sys
from shardmill.infra.dataset.decisions import Decision, DecisionLog
from shardmill.infra.storage.filesystem import Storage
log = DecisionLog(Storage.at(sys.argv[1]))
for number in range(int(sys.argv[3])):
    log.append([Decision(f"{sys.argv[2]}-{number}", f"{number:016x}", "keep", sys.argv[2])])
"""


def check_processes(location: str, each: int) -> None:
    argv = [sys.executable, "-c", WRITER, location]
    writers = [subprocess.Popen([*argv, name, str(each)]) for name in ("ada", "bob", "eve")]
    assert [writer.wait(timeout=300) for writer in writers] == [0, 0, 0]
    rows = DecisionLog(Storage.at(location)).read().rows
    assert [row.number for row in rows] == list(range(1, 3 * each + 1))
    for name in ("ada", "bob", "eve"):
        assert [row.key for row in rows if row.by == name] == [f"{name}-{at}" for at in range(each)]


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    check_processes(str(tmp_path), 40)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with serve("decisions") as running:
        yield running


@pytest.mark.slow
def test_processes_that_append_at_once_to_a_bucket_lose_nothing(store: ObjectStore) -> None:
    check_processes(store.location("d", credentials=f"{KEY}:{SECRET}@"), 40)


@pytest.mark.slow
def test_ten_thousand_appends_stay_cheap(tmp_path: Path) -> None:
    log = DecisionLog(Storage.at(tmp_path))
    for number in range(10_000):
        log.append([made(number, record=number)])
    assert len(DecisionLog(Storage.at(tmp_path)).read().rows) == 10_000
    repeated = sum(len(json.loads(p.read_bytes())["decisions"]) for p in tmp_path.rglob("*.json"))
    assert repeated < 10_000 * 8
