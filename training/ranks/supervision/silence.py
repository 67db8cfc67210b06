"""Judge by the silence of the ranks of an attempt whether one of them hangs. Pure: it reads no clock.

Ranks wait for each other in each step. So when one hangs, all ranks fall silent; and a silent rank does not
hang if it waits for a rank whose work may take long. There are two signs of a hang: ranks that take steps are
silent for much longer than any step took before, or no rank has used a processor for a while. The second sign
also finds a hang at the start and in a first step: ranks may compile for minutes there, but that uses a
processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmill.training.ranks.heartbeat import Work
from shardmill.training.ranks.supervision.running_rank import RankState

_TIMES_SLOWEST = 20
LEAST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Times after which a rank counts as hung (seconds).

    Attributes:
        start: the silence that is allowed until the first steps of a stage are done.
        step: the silence that is allowed between two beats after that; None: 20 times the slowest step so
            far, and at least ``least``.
        stop: the time that the ranks have to save and to end after they were asked to stop.
        least: the shortest silence that may count as a hang, if ``step`` is None.
        sees_all: whether this process watches all ranks. Only then does it count as a hang if no rank uses a
            processor.
    """

    start: float
    step: float | None
    stop: float
    least: float = LEAST_SECONDS
    sees_all: bool = True

    @property
    def idle(self) -> float:
        """The time that all ranks may be silent without using a processor (seconds)."""
        return self.least if self.step is None else self.step


class SilenceWatch:
    """Looks at the ranks of an attempt. It learns from the steps that they have finished."""

    def __init__(self, limits: Limits) -> None:
        """Begin to watch ranks that have not taken a step."""
        self._limits = limits
        self._before: Mapping[int, RankState] = {}
        self._slowest = 0.0

    def look(self, states: Mapping[int, RankState]) -> str | None:
        """Learn from a look, and return the reason why a rank hangs; None: none does.

        Args:
            states: all ranks that run, by number.
        """
        self._learn(states)
        self._before = states
        longest = max((state.silent_seconds for state in states.values()), default=0.0)
        if self._has_silent_rank(states):
            return f"gave no sign of life for {longest:.0f} s"
        if states and self._all_idle(states):
            return f"gave no sign of life for {longest:.0f} s, and no rank used a processor"
        return None

    def _learn(self, states: Mapping[int, RankState]) -> None:
        """Note the time of a step that is done.

        The step took about as long as the rank was silent at the last look. A step that is not done does not
        count, since a hang would extend its own limit; nor does a step in which a rank may have waited for
        the long work of another.
        """
        if any(state.beat.work != Work.STEPS for state in self._before.values()):
            return
        for rank, state in states.items():
            before = self._before.get(rank)
            if before is not None and state.beat.number > before.beat.number:
                self._slowest = max(self._slowest, before.silent_seconds)

    def _limit(self, work: Work) -> float:
        """Return the time that a rank may be silent during work of a kind."""
        if work != Work.STEPS:
            return self._limits.start
        if self._limits.step is not None:
            return self._limits.step
        return max(self._limits.least, _TIMES_SLOWEST * self._slowest)

    def _has_silent_rank(self, states: Mapping[int, RankState]) -> bool:
        """Return whether a rank is silent for too long, and no other does work that it may wait for."""
        in_time = [state for state in states.values() if state.silent_seconds <= self._limit(state.beat.work)]
        return len(in_time) < len(states) and all(state.beat.work == Work.STEPS for state in in_time)

    def _all_idle(self, states: Mapping[int, RankState]) -> bool:
        """Return whether all ranks are silent and idle, and none does work during which it may be idle."""
        return self._limits.sees_all and all(
            state.beat.work != Work.LONG and min(state.silent_seconds, state.idle_seconds) > self._limits.idle
            for state in states.values()
        )
