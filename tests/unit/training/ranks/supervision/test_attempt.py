"""One attempt, with ranks that are no processes."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from shardmill.infra.errors import EnvironmentFault, Preempted, ShardmillError
from shardmill.training.ranks.heartbeat import Beat, Work
from shardmill.training.ranks.supervision.attempt import Attempt
from shardmill.training.ranks.supervision.outcomes import Failed, Finished, Outcome, Stopped, StopRequests
from shardmill.training.ranks.supervision.running_rank import RankState, RunningRank
from shardmill.training.ranks.supervision.silence import Limits


class Rank(RunningRank):
    """A rank that has taken all steps, and ends after some looks at it."""

    def __init__(
        self, rank: int, looks: int, work: Work = Work.STEPS, error: ShardmillError | None = None
    ) -> None:
        super().__init__(rank)
        self.beat = Beat(9, work, 4)
        self.error = error
        self.signals: list[signal.Signals] = []
        self.looks = looks  # until it ends

    def _seen(self) -> RankState:
        self.looks -= 1
        if self.looks > 0:
            return RankState(None, self.beat)
        if self.error is not None:
            return RankState(self.error.exit_code, self.beat, error=self.error)
        return RankState(0, self.beat, result={"rank": self.rank})

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def close(self) -> None:
        pass


def test_a_device_that_is_there_again_at_the_end_disturbs_no_export() -> None:
    ranks = [Rank(0, looks=40), Rank(1, looks=0)]
    assert waited(ranks, StopRequests(), stop_seconds=0.0) == Finished({"rank": 0}, 0)
    assert ranks[0].signals == []


@pytest.mark.parametrize("work", [Work.START, Work.LONG])
def test_ranks_that_would_not_stop_soon_are_not_asked_for_a_device(work: Work) -> None:
    ranks = [Rank(0, looks=40), Rank(1, looks=40, work=work)]
    assert waited(ranks, StopRequests(), stop_seconds=0.0) == Finished({"rank": 0}, 0)
    assert ranks[1].signals == []


def test_a_second_request_waits_for_no_rank_that_still_saves() -> None:
    stop = StopRequests()
    stop.ask(preempted=True)
    stop.ask(preempted=True)
    ranks = [Rank(0, looks=1000), Rank(1, looks=0, error=Preempted("stopped on request"))]
    assert waited(ranks, stop, stop_seconds=5.0) == Stopped(preempted=True)
    assert ranks[0].looks > 950


def test_a_rank_that_fails_while_the_others_have_stopped_is_told() -> None:
    stop = StopRequests()
    stop.ask(preempted=True)
    full, stopped = EnvironmentFault("the disk is full"), Preempted("stopped on request")
    outcome = waited([Rank(0, looks=20, error=full), Rank(1, looks=0, error=stopped)], stop, stop_seconds=5.0)
    assert isinstance(outcome, Failed)
    assert (outcome.rank, outcome.error) == (0, full)


def waited(ranks: Sequence[Rank], stop: StopRequests, stop_seconds: float) -> Outcome:
    """The outcome of an attempt with ranks, while another device waits to join."""
    with Attempt(Limits(start=60.0, step=None, stop=stop_seconds)) as attempt:
        attempt.start(ranks)
        return attempt.wait(stop, lambda: True)
