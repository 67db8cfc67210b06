"""Judge by the silence of the ranks of an attempt whether one of them hangs. Pure: it reads no clock.

Ranks wait for each other in each step, so all of them fall silent when one hangs, and none hangs that waits
for one which still may take long. Two things tell of a hang: the silence of ranks that take steps is much
longer than any step before, or no rank has used a processor for a while. The second one also finds a hang at
the start and in a first step, where ranks may compile for minutes; but compiling takes a processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from training.ranks.heartbeat import Beat, Work

_TIMES_SLOWEST = 20
LEAST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Times after which a rank counts as hung (seconds).

    Attributes:
        start: until the first steps are done, and until the first steps of each further stage are.
        step: between two beats after that; None: 20 times the slowest step so far, and at least ``least``.
        stop: until all ranks have saved and ended when they were asked to.
        least: the shortest silence that may count as a hang, if ``step`` is None.
        sees_all: all ranks are watched, so that they hang if none of them uses a processor.
    """

    start: float
    step: float | None
    stop: float
    least: float = LEAST_SECONDS
    sees_all: bool = True

    @property
    def idle(self) -> float:
        """The time that all ranks may be silent without using a processor."""
        return self.least if self.step is None else self.step


@dataclass(frozen=True, slots=True)
class Sign:
    """A rank at one look.

    Attributes:
        beat: its latest beat.
        silent_seconds: time since its latest sign of life.
        idle_seconds: for how long its processes have used no processor.
    """

    beat: Beat
    silent_seconds: float
    idle_seconds: float


class SilenceWatch:
    """Looks at the ranks of an attempt. It learns from the steps that they have finished."""

    def __init__(self, limits: Limits) -> None:
        """Begin with ranks that have not taken a step."""
        self._limits = limits
        self._before: Mapping[int, Sign] = {}
        self._slowest = 0.0

    def look(self, signs: Mapping[int, Sign]) -> str | None:
        """Learn from a look, and return the reason why a rank hangs; None: none does.

        Args:
            signs: all ranks that run, by number.
        """
        self._learn(signs)
        self._before = signs
        longest = max((sign.silent_seconds for sign in signs.values()), default=0.0)
        if self._has_silent_rank(signs):
            return f"gave no sign of life for {longest:.0f} s"
        if signs and self._all_idle(signs):
            return f"gave no sign of life for {longest:.0f} s, and no rank used a processor"
        return None

    def _learn(self, signs: Mapping[int, Sign]) -> None:
        """Note the time of a step that is done.

        It took about as long as the rank was silent at the last look. A step under way does not count: a hang
        would extend its own limit. Nor does one in which a rank may have waited for another's long work.
        """
        if any(sign.beat.work != Work.STEPS for sign in self._before.values()):
            return
        for rank, sign in signs.items():
            before = self._before.get(rank)
            if before is not None and sign.beat.number > before.beat.number:
                self._slowest = max(self._slowest, before.silent_seconds)

    def _limit(self, work: Work) -> float:
        """Return the time that a rank may be silent during work of a kind."""
        if work != Work.STEPS:
            return self._limits.start
        if self._limits.step is not None:
            return self._limits.step
        return max(self._limits.least, _TIMES_SLOWEST * self._slowest)

    def _has_silent_rank(self, signs: Mapping[int, Sign]) -> bool:
        """Return whether a rank is silent for too long, and no other does work that it may wait for."""
        in_time = [sign for sign in signs.values() if sign.silent_seconds <= self._limit(sign.beat.work)]
        return len(in_time) < len(signs) and all(sign.beat.work == Work.STEPS for sign in in_time)

    def _all_idle(self, signs: Mapping[int, Sign]) -> bool:
        """Return whether all ranks are silent and idle, and none does work that may be idle."""
        return self._limits.sees_all and all(
            sign.beat.work != Work.LONG and min(sign.silent_seconds, sign.idle_seconds) > self._limits.idle
            for sign in signs.values()
        )
