"""Problems of the platform are kept in files until they are over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardmill.flows import home
from shardmill.flows.problems import Problem, close_problem, open_problem, open_problems, set_problems


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))


def test_a_problem_is_open_until_it_is_closed_and_keeps_its_first_time() -> None:
    open_problem(Problem("source", "/data/photos", "it cannot be listed", "mount it", since=1000.0))
    open_problem(Problem("service", "the worker", "it hangs", since=900.0))
    open_problem(Problem("source", "/data/photos", "it is empty"))
    worker, source = open_problems()
    assert (worker.subject, worker.since) == ("the worker", 900.0)
    assert (source.text, source.remedy, source.since) == ("it is empty", "", 1000.0)
    close_problem("source", "/data/photos")
    close_problem("source", "/data/photos")
    assert open_problems() == [worker]


def test_several_may_open_the_same_problem_at_once() -> None:
    def open_again(number: int) -> None:
        open_problem(Problem("source", "/data/photos", f"it cannot be listed: {number}"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(open_again, range(200)))  # raises what any of them raised
    assert [one.subject for one in open_problems()] == ["/data/photos"]


def test_the_problems_of_a_kind_are_replaced_together() -> None:
    for subject in ("a", "b"):
        open_problem(Problem("source", subject, "gone"))
    open_problem(Problem("service", "a", "hangs"))
    set_problems("source", [Problem("source", "b", "gone"), Problem("source", "c", "gone")])
    assert {(one.kind, one.subject) for one in open_problems()} == {
        ("source", "b"),
        ("source", "c"),
        ("service", "a"),
    }


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"a": 1}', b"\xff\xfe", b'{"kind": "source", "subject": 1, "text": []}'],
)
def test_a_damaged_file_is_left_out(content: bytes) -> None:
    open_problem(Problem("source", "a", "gone"))
    (home.problems_folder() / "0123456789abcdef.json").write_bytes(content)
    assert [one.subject for one in open_problems()] == ["a"]
