"""Progress of a Beam job, counted in storage."""

from __future__ import annotations

from typing import Any

from shardmill.beam_jobs.execution.progress import report_progress
from shardmill.infra.progress import subscribe


def test_progress_is_reported_from_begin_to_end() -> None:
    events: list[dict[str, Any]] = []
    counts = iter([2, 4, 3])
    unsubscribe = subscribe(lambda event: events.append(dict(event)))
    try:
        with report_progress("encode", 10, lambda: next(counts, 10), interval_seconds=0.01):
            while sum(event["event"] == "progress" for event in events) < 3:
                pass
    finally:
        unsubscribe()
    assert (events[0]["event"], events[0]["done"]) == ("stage", 2)
    assert [event["done"] for event in events[1:3]] == [4, 4], "it never goes back"
    assert (events[-1]["done"], events[-1]["total"]) == (10, 10)
