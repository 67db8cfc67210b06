"""Jobs that share a machine work one after another."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardmill.infra.processes.turns import TURNS_VARIABLE, Turn
from shardmill.infra.progress import Event, subscribe, waiting, work_clock

JOB = """
import sys
from shardmill.infra.processes.turns import Turn
with Turn(sys.argv[1]) as turn:
    turn.take()
    print("works", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(TURNS_VARIABLE, str(tmp_path / "home" / "turns.lock"))
    return tmp_path / "home" / "turns.lock"


@contextmanager
def job(work: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", JOB, work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_job_waits_until_the_other_has_ended_and_says_for_which() -> None:
    said: list[Event] = []

    def remember_and_kill_second(event: Event) -> None:
        said.append(event)
        second.kill()  # the kernel gives its turn back

    with job("prepare photos") as first:
        assert line(first) == "works\n"
        with job("train photos@1") as second, Turn("compact photos") as third:
            first.communicate("\n")
            assert line(second) == "works\n"
            unsubscribe = subscribe(remember_and_kill_second)
            try:
                third.take()
            finally:
                unsubscribe()
    other = f"train photos@1 (process {second.pid})"
    told = [event["message"] for event in said if event["event"] == "log"]
    assert told
    assert all(f"waiting until {other} has ended" in text for text in told)
    assert [event["until"] for event in said if event["event"] == "waiting"] == [other, ""]


def test_what_waits_names_the_job_that_works(turns: Path) -> None:
    with job("prepare photos") as first:
        assert line(first) == "works\n"
        assert turns.read_text() == f"prepare photos (process {first.pid})"
        with job("train photos@1") as second:
            assert second.stdout is not None
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(timeout=1.5)
            assert turns.read_text().startswith("prepare photos"), "and it has not begun"


def test_nothing_waits_where_nobody_asked_for_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    with job("prepare photos") as first:
        assert line(first) == "works\n"
        monkeypatch.delenv(TURNS_VARIABLE)
        with Turn("train photos@1") as turn:
            turn.take()


def test_a_turn_is_taken_once() -> None:
    with Turn("prepare photos") as turn:
        turn.take()
        turn.take()
    with job("train photos@1") as other:
        assert line(other) == "works\n"


def test_work_on_gpus_and_on_processors_does_not_wait_for_each_other(turns: Path) -> None:
    with job("prepare photos") as first, Turn("train photos@1", "gpu") as training:
        assert line(first) == "works\n"
        training.take()
        assert turns.with_name(f"{turns.name}-gpu").read_text().startswith("train photos@1")
        assert turns.read_text().startswith("prepare photos")


def test_a_short_job_passes_a_long_one_and_waits_for_other_short_ones(turns: Path) -> None:
    said: list[Event] = []
    with job("train photos@1") as first, Turn("prepare new") as short:
        assert line(first) == "works\n"
        unsubscribe = subscribe(said.append)
        try:
            short.take(is_short=True, patience_seconds=0.0)
        finally:
            unsubscribe()
        assert turns.read_text().startswith("train photos@1"), "it keeps its turn"
        assert turns.with_name(f"{turns.name}-short").read_text().startswith("prepare new")
    told = [str(event.get("message")) for event in said]
    assert any("working beside train photos@1" in text for text in told)


def test_waiting_is_no_work() -> None:
    """Rates and times stand still: a stage that waits for an hour is not an hour slower."""
    began, clock = time.monotonic(), work_clock()
    waiting("train photos@1")
    stands = work_clock()
    time.sleep(0.3)
    assert work_clock() == stands
    waiting("")
    assert time.monotonic() - began - (work_clock() - clock) >= 0.3
