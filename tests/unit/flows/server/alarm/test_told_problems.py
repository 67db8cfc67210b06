"""Each problem is told once when it begins, and once when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.flows.problems import Problem, close_problem, open_problem
from shardmill.flows.server.alarm import outbox
from shardmill.flows.server.alarm.destinations import Destination
from shardmill.flows.server.alarm.problems import ToldProblems

HOOK = Destination("http://127.0.0.1/hook", frozenset({"failed"}))
OTHER = Destination("http://127.0.0.1/other", frozenset({"problem"}))
PUBLISHED = Destination("http://127.0.0.1/published", frozenset({"published"}))
ALL = {one.name: one for one in (HOOK, OTHER, PUBLISHED)}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))


def texts(to: Destination) -> list[str]:
    return [one.message.text for _, one in outbox.waiting().get(to.name, [])]


def test_a_problem_and_its_end_are_told_once_also_by_another_process() -> None:
    problem = Problem("source", "/photos", "/photos cannot be listed", "mount it")
    open_problem(problem)
    told = ToldProblems()
    assert len(told.look(ALL)) == 1
    assert told.look(ALL) == ToldProblems().look(ALL) == []
    close_problem("source", "/photos")
    assert len(ToldProblems().look(ALL)) == 1
    assert ToldProblems().look(ALL) == []
    for to in (HOOK, OTHER):
        begun, over = texts(to)
        assert begun == "/photos cannot be listed; mount it"
        assert over.startswith("Over after ")
        assert over.endswith(": /photos cannot be listed")
    assert texts(PUBLISHED) == []


def test_who_cannot_be_reached_is_not_told_of_that() -> None:
    open_problem(Problem("notification", HOOK.name, "1 message cannot be sent"))
    ToldProblems().look(ALL)
    assert (len(texts(HOOK)), len(texts(OTHER))) == (0, 1)


def test_a_problem_that_comes_and_goes_is_told_once() -> None:
    told = ToldProblems()
    for _ in range(5):
        open_problem(Problem("source", "/photos", "/photos cannot be listed"))
        told.look(ALL)
        close_problem("source", "/photos")
        told.look(ALL)
    assert len(texts(HOOK)) == 2
