"""The report of a rank to its parent at the end of a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.errors import Preempted
from training.loop.stopping.agreed_stop import AgreedStop
from training.ranks.heartbeat import Heart, prepare, read


class Alone:
    """A single rank."""

    rank = 0
    num_ranks = 1
    is_first = True

    def total(self, value: Any) -> Any:
        return np.asarray(value)

    def all_values(self, value: Any) -> list[Any]:
        return [value]

    def value_of_first(self, value: Any) -> Any:
        return value

    def variables_of_first(self, variables: Any) -> None:
        pass


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


class TwoAlike(Alone):
    """Two ranks that do the same; what ``meanwhile`` does comes while they add up."""

    num_ranks = 2

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None

    def total(self, value: Any) -> Any:
        self.meanwhile()
        return 2 * np.asarray(value)


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
