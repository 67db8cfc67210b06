"""A job that starts before its flow: none of its output is lost, and no process is left over."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.flows.flow_runs.running import run_job, started_early
from shardmill.infra import progress
from tests.samples.waiting import eventually

FAKE = (sys.executable, str(Path(__file__).parent / "fake_job.py"))


def test_the_flow_hears_what_was_said_before_it_took_over() -> None:
    at_once: list[str] = []
    unsubscribe = progress.subscribe(lambda event: at_once.append(event["event"]))
    events: list[Any] = []
    lines: list[str] = []
    try:
        with started_early([*FAKE, "works", "x"]) as job:
            assert not job.ends_without_work(60), "it worked"
            assert eventually(lambda: "result" in at_once), "the listeners of the process hear it at once"
            result = run_job([*FAKE, "works", "x"], events.append, lines.append).reported()
    finally:
        unsubscribe()
    assert result["arguments"] == ["x"]
    assert [event["event"] for event in events] == at_once == ["stage", "progress", "metrics", "result"]
    assert lines == ["a line of the fake job"]


def test_a_job_that_only_listed_ends_soon() -> None:
    job = (
        "from shardmill.infra import progress; progress.adopt_parent()\n"
        "progress.stage('list'); progress.result({'unchanged': True})"
    )
    command = [sys.executable, "-c", job]
    with started_early(command) as early:
        assert early.ends_without_work(60)
        assert run_job(command, lambda _: None, lambda _: None).reported() == {"unchanged": True}


def test_only_the_first_job_is_taken_over() -> None:
    with started_early([*FAKE, "works", "early"]):
        results = [
            run_job([*FAKE, "works", "later"], lambda _: None, lambda _: None).reported() for _ in range(2)
        ]
    assert [result["arguments"] for result in results] == [["early"], ["later"]]


def test_a_flow_that_ends_without_the_early_job_is_a_defect() -> None:
    with pytest.raises(RuntimeError, match="without its first job"), started_early([*FAKE, "waits"]):
        pass


def test_nobody_took_it_over_and_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "pids"
    monkeypatch.setenv("FAKE_JOB_MARKER", str(marker))

    def interrupted() -> None:
        with started_early([*FAKE, "waits"]):
            assert eventually(lambda: marker.exists() and bool(marker.read_text()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not any(psutil.pid_exists(int(pid)) for pid in marker.read_text().split())
