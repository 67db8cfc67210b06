"""Stop all ranks at the same step boundary, and tell the parent that this rank is alive.

Ranks that stop at different steps would wait for each other for ever. So they agree: about once a second,
counted in boundaries, they add up their flags, and all stop if one of them was asked to. The number of
boundaries to the next meeting is a function of the added-up times, hence the same on all ranks.
"""

from __future__ import annotations

import time

import numpy as np

from infra.errors import GO_ON, Cancelled, Preempted
from training.loop.stopping.interruption import STOPPED, StopFlag
from training.ranks.heartbeat import Heart
from training.ranks.peers import Peers

_SECONDS_BETWEEN = 1.0
_MOST_BOUNDARIES = 1000


class AgreedStop(StopFlag):
    """A ``StopFlag`` of all ranks together. Every rank checks it at the same boundaries."""

    def __init__(self, ranks: Peers, heart: Heart | None = None) -> None:
        """Make a flag that is not set.

        Args:
            ranks: the ranks that must agree.
            heart: beats at each boundary.
        """
        super().__init__()
        self._ranks = ranks
        self._heart = heart
        self._wanted = self._granted = False
        self._boundaries = 0
        self._wait = 1
        self._met_at = time.monotonic()

    def agreed(self, wanted: bool) -> bool:
        """Return once, on all ranks at the same boundary, that one of them wants something."""
        if self._ranks.num_ranks == 1:
            return wanted
        granted, self._granted = self._granted, False
        self._wanted = wanted and not granted
        return granted

    def any_rank(self, wanted: bool) -> bool:
        """Return whether any rank wants something now. Every rank must call this at the same point."""
        return bool(self._ranks.total(np.array([wanted], np.float32))[0] > 0)

    def note_step(self) -> None:
        """Tell the parent that a step is done. It must know that before anybody reads of the step."""
        if self._heart is not None and self.steps_done is not None:
            self._heart.note_step(self.steps_done())

    def check(self) -> None:
        """Raise on all ranks if one was asked to stop and they meet here.

        Raises:
            Cancelled: asked by a person.
            Preempted: asked by the system.
        """
        if self._heart is not None:
            self._heart.beat(None if self.steps_done is None else self.steps_done())
        if self._ranks.num_ranks == 1:
            super().check()
            return
        self._boundaries += 1
        if self._boundaries >= self._wait:
            self._meet()

    def _meet(self) -> None:
        now = time.monotonic()
        asked = self.asked
        told = [asked == "preempted", asked == "cancelled", self._wanted, now - self._met_at]
        preempted, cancelled, wanted, seconds = self._ranks.total(np.array(told, np.float32)).tolist()
        self._granted = wanted > 0
        if preempted or cancelled:
            # Not a flag that was set during the meeting: the other ranks hear of it at the next one.
            raise (Cancelled if cancelled else Preempted)(STOPPED, GO_ON)
        each = seconds / self._ranks.num_ranks / self._boundaries
        # Compilation makes the first boundaries slow: go on to longer waits step by step.
        wanted = int(_SECONDS_BETWEEN / max(each, 1e-6))
        self._wait = max(1, min(wanted, 2 * self._wait, _MOST_BOUNDARIES))
        self._boundaries, self._met_at = 0, time.monotonic()
