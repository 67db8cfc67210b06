"""Times of the stages of a job."""

from __future__ import annotations

import pytest

from shardmill.infra.progress.whole_job import StageTimes


def test_a_stage_that_is_entered_again_adds_up_and_a_failed_one_does_not_count() -> None:
    times = StageTimes()
    for _ in range(2):
        with times.measure("encode"):
            times.add_cpu_seconds("encode", 1.5)
    with pytest.raises(ValueError, match="no"), times.measure("plan"):
        raise ValueError("no")
    assert times.seconds.keys() == times.cpu_seconds.keys() == {"encode"}
    assert times.cpu_seconds["encode"] >= 3.0
    assert times.since_start() >= times.seconds["encode"] - 0.001
