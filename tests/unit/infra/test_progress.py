"""Progress events and how a person sees them."""

from __future__ import annotations

from typing import Any

import pytest

from shardmill.infra import progress
from shardmill.infra.errors import DataError
from shardmill.infra.whole_job import TerminalProgress


@pytest.fixture
def events() -> Any:
    found: list[Any] = []
    unsubscribe = progress.subscribe(found.append)
    yield found
    unsubscribe()


def test_listeners_get_every_kind(events: list[dict[str, Any]]) -> None:
    progress.stage("encode", 10, done=4)
    progress.progress("encode", 6, 10)
    progress.metrics(step=1)
    progress.log("hello")
    progress.result({"a": 1})
    progress.failure(DataError("bad", "mend it"))
    assert [event["event"] for event in events] == ["stage", "progress", "metrics", "log", "result", "error"]
    assert all(event["time"] > 1_700_000_000 for event in events)
    assert events[0]["done"] == 4
    assert events[1]["per_second"] > 0
    assert events[5] | {"time": 0} == {
        "event": "error",
        "type": "DataError",
        "message": "bad",
        "remedy": "mend it",
        "exit_code": 3,
        "time": 0,
    }


def test_the_rate_does_not_count_what_was_there_before(
    events: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("shardmill.infra.progress.time.monotonic", lambda: now)
    progress.stage("encode", 1000, done=900)
    now = 110.0
    progress.progress("encode", 950, 1000)
    assert events[1]["per_second"] == 5.0


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress(live=False) as show:
        show({"event": "stage", "stage": "encode", "total": 1000, "unit": "images", "done": 0})
        for done in range(1, 1000):  # quick steps are not worth a line each
            show({"event": "progress", "stage": "encode", "done": done, "total": 1000, "unit": "images"})
        show(
            {
                "event": "progress",
                "stage": "encode",
                "done": 1000,
                "total": 1000,
                "unit": "images",
                "per_second": 1234.5,
            }
        )
        show({"event": "log", "level": "warning", "message": "[odd] <text>"})
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "encode: 0 of 1,000 images",
        "encode: 1,000 of 1,000 images, 1,234 images/s",
        "warning: [odd] <text>",
    ]


def test_a_live_bar_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress(live=True) as show:
        show({"event": "stage", "stage": "encode", "total": 10, "unit": "images", "done": 0})
        show({"event": "progress", "stage": "encode", "done": 10, "total": 10, "unit": "images"})
        show({"event": "log", "level": "info", "message": "[odd] text"})
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "encode" in captured.err
    assert "10 of 10 images" in captured.err
    assert "100%" in captured.err
    assert "[odd] text" in captured.err
