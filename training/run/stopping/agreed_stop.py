"""Stop all ranks at the same step boundary, and tell the parent that this rank is alive.

Ranks that stop at different steps would wait for each other for ever. So they meet: about once a second,
counted in boundaries, they add up what each of them was asked for and wants. What a meeting finds is the same
on all ranks, and so is the number of boundaries to the next one, since it follows from the added-up times.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from shardmill.infra.errors import GO_ON, Cancelled, Preempted
from shardmill.training.ranks.heartbeat import Heart, Work
from shardmill.training.ranks.peers import Peers
from shardmill.training.run.stopping.interruption import STOPPED, StopFlag

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
        self._own_wish = False  # for the next meeting
        self._granted = False  # the last meeting agreed to stop; False again once reported
        self._boundaries = 0  # since the last meeting
        self._boundaries_between = 1
        self._met_at = time.monotonic()

    def agreed(self, wanted: bool) -> bool:
        """Return once, on all ranks at the same boundary, that one of them wants something.

        The wish is brought to the next meeting; what that grants is returned by the next call after it.
        """
        if self._ranks.num_ranks == 1:
            return wanted
        granted, self._granted = self._granted, False
        self._own_wish = wanted and not granted
        return granted

    def any_rank(self, wanted: bool) -> bool:
        """Return whether any rank wants something now. Every rank must call this at the same point."""
        return bool(self._ranks.total(np.array([wanted], np.float32))[0] > 0)

    def note_step(self) -> None:
        """Tell the parent that a step is done. It must know that before anybody reads of the step."""
        if self._heart is not None and self.steps_done is not None:
            self._heart.note_step(self.steps_done())

    def during(self, work: Work) -> AbstractContextManager[None]:
        """Tell the parent that a block does work of a kind."""
        return nullcontext() if self._heart is None else self._heart.during(work)

    def begin_stage(self) -> None:
        """Tell the parent that the next steps are of another kind, and may compile."""
        if self._heart is not None:
            self._heart.begin_stage()

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
        if self._boundaries >= self._boundaries_between:
            self._meet()

    def _meet(self) -> None:
        """Hear of all ranks whether one was asked to stop, or wants something; settle the next meeting."""
        asked, now = self.asked, time.monotonic()
        own = [asked == "preempted", asked == "cancelled", self._own_wish, now - self._met_at]
        preempted, cancelled, wishes, seconds = self._ranks.total(np.array(own, np.float32)).tolist()
        self._granted = wishes > 0
        if preempted or cancelled:
            # Not a flag that was set during the meeting: the other ranks hear of it at the next one.
            raise (Cancelled if cancelled else Preempted)(STOPPED, GO_ON)
        of_a_boundary = seconds / self._ranks.num_ranks / self._boundaries
        in_time = int(_SECONDS_BETWEEN / max(of_a_boundary, 1e-6))
        # Compilation makes the first boundaries slow: go on to longer waits step by step.
        self._boundaries_between = max(1, min(in_time, 2 * self._boundaries_between, _MOST_BOUNDARIES))
        self._boundaries, self._met_at = 0, time.monotonic()
