"""One attempt, with ranks that are no processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

from training.ranks.heartbeat import Beat, Work
from training.ranks.supervision.attempt import Attempt
from training.ranks.supervision.hosts import RunningRank
from training.ranks.supervision.outcomes import Finished
from training.ranks.supervision.silence import Limits
from training.ranks.supervision.stop_requests import StopRequests


class Rank:
    """A rank that has taken all steps, and ends after some looks at it; see ``RunningRank``."""

    lost = error = None
    last_lines = ""
    beat = Beat(9, Work.LONG, 4)

    def __init__(self, rank: int, looks: int) -> None:
        self.rank = rank
        self.ended_at: float | None = None
        self.signals: list[signal.Signals] = []
        self._looks = looks

    @property
    def result(self) -> dict[str, Any] | None:
        return {"rank": self.rank} if self._looks <= 0 else None

    def poll(self) -> int | None:
        self._looks -= 1
        return None if self._looks > 0 else 0

    def silent_seconds(self) -> float:
        return 0.0

    idle_seconds = stopped_seconds = silent_seconds

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def close(self) -> None:
        pass


def test_a_device_that_is_there_again_at_the_end_disturbs_no_export() -> None:
    ranks = [Rank(0, looks=40), Rank(1, looks=0)]

    def start(_on_event: object) -> Iterator[RunningRank]:
        yield from ranks

    with Attempt(Limits(start=60.0, step=None, stop=0.0), lambda _event: None) as attempt:
        attempt.start(start)
        outcome = attempt.wait(StopRequests(), lambda: True)
    assert outcome == Finished({"rank": 0}, 0)
    assert ranks[0].signals == []
