"""The report of a rank to its parent at the end of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.infra.errors import Preempted
from shardmill.training.ranks.heartbeat import Heart, prepare, read
from shardmill.training.run.stopping import AgreedStop
from tests.samples.ranks.peers import Alone, TwoAlike


def test_the_parent_knows_of_a_step_before_its_figures_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    prepare(path)
    stop = AgreedStop(Alone(), Heart(path))
    stop.note_step()  # before the first step there is nothing to note
    assert read(path).step == 0
    stop.steps_done = lambda: 9
    stop.note_step()
    assert (read(path).step, read(path).number) == (9, 0)
    stop.check()
    assert (read(path).step, read(path).number) == (9, 1)


def test_a_signal_during_a_meeting_stops_all_ranks_at_the_next_one() -> None:
    ranks = TwoAlike()
    stop = AgreedStop(ranks)
    ranks.meanwhile = lambda: stop.ask(preempted=True)
    stop.check()  # the other ranks go on, so this one must too
    with pytest.raises(Preempted):
        _check_often(stop)


def _check_often(stop: AgreedStop) -> None:
    for _ in range(1000):
        stop.check()


def test_a_wish_of_one_rank_is_granted_to_all_once() -> None:
    stop = AgreedStop(TwoAlike())
    granted = []
    for wanted in (True, False, False, False):
        granted.append(stop.agreed(wanted))
        stop.check()
    assert granted == [False, True, False, False]
