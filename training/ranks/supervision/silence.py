"""The longest silence of a rank that does not yet count as hung."""

from __future__ import annotations

from dataclasses import dataclass

from training.ranks.heartbeat import Beat

_FIRST_BEATS = 4  # the first two steps of a stage: each may compile
_SLOWEST = 20
_LEAST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Times after which a rank counts as hung (seconds).

    Attributes:
        start: until the first steps are done, and until the first steps of each further stage are.
        step: between two beats after that; None: 20 times the slowest step so far, and at least a minute.
        stop: until all ranks have saved and ended when they were asked to.
    """

    start: float
    step: float | None
    stop: float


class AllowedSilence:
    """The time for which one rank may be silent. It learns from the steps that the rank has finished."""

    def __init__(self, limits: Limits) -> None:
        """Begin with a rank that has not taken a step."""
        self._limits = limits
        self._num_beats = 0
        self._silent = 0.0
        self._slowest = 0.0

    def seconds(self, beat: Beat, silent_seconds: float) -> float:
        """Return the time that the rank may be silent (seconds). Call it at each look at the rank.

        Args:
            beat: its latest beat.
            silent_seconds: the time since then.
        """
        if beat.number > self._num_beats:
            # What was under way at the last look is done, and took about as long as was seen then. What is
            # still under way does not count: a hang would extend its own limit.
            if beat.in_stage > _FIRST_BEATS:
                self._slowest = max(self._slowest, self._silent)
            self._num_beats = beat.number
        self._silent = silent_seconds
        if beat.in_stage < _FIRST_BEATS:
            return self._limits.start
        if self._limits.step is not None:
            return self._limits.step
        return max(_LEAST_SECONDS, _SLOWEST * self._slowest)
