"""Stop a run at a step boundary when a signal asks for it, or at once when a signal asks a second time.

Ranks that stop at different steps would wait for each other for ever. So they meet: about once a second,
counted in boundaries, they add up what each of them was asked for and wants. What a meeting finds is the same
on all ranks, and so is the number of boundaries to the next one, since it follows from the added-up times.

The boundary may be minutes away while a large model is traced or compiled. Then TensorFlow's own code runs,
and no Python handler does. So a thread watches the signals themselves. A rank under a parent needs no such
thread: the parent ends it at a second signal, and an outer system may send a rank the signal that the parent
also passes on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Literal

import numpy as np

from shardmill.infra.errors import GO_ON, Cancelled, Preempted
from shardmill.training.ranks.heartbeat import Heart, Work
from shardmill.training.ranks.peers import Peers

_SECONDS_BETWEEN = 1.0
_MOST_BOUNDARIES = 1000
# A terminal sends Ctrl-C to all processes, and a parent may pass it on: that is one request.
_SAME_REQUEST_SECONDS = 0.5


class StopFlag:
    """Set when the run shall stop.

    Attributes:
        steps_done: tells how many steps of the run are done; None: none yet.
    """

    def __init__(self) -> None:
        self._asked: type[Cancelled] | None = None
        self.steps_done: Callable[[], int] | None = None

    def ask(self, *, preempted: bool = False) -> None:
        """Ask the run to stop at the next boundary.

        Args:
            preempted: the system asks, and will start the run again; else a person asks.
        """
        self._asked = Preempted if preempted else Cancelled

    def note_step(self) -> None:
        """Note that a step is done; its figures are not reported yet."""

    def during(self, work: Work) -> AbstractContextManager[None]:
        """Tell the parent, if one watches this process, that a block does work of a kind."""
        return nullcontext()

    def begin_stage(self) -> None:
        """Tell the parent that the next steps are of another kind, and may compile."""

    @property
    def asked(self) -> Literal["preempted", "cancelled"] | None:
        """Who asked: the system ("preempted") or a person ("cancelled"); None: nobody."""
        if self._asked is None:
            return None
        return "preempted" if self._asked is Preempted else "cancelled"

    def agreed(self, wanted: bool) -> bool:
        """Return whether the run shall do something that this process wants, such as a timely checkpoint."""
        return wanted

    def any_rank(self, wanted: bool) -> bool:
        """Return whether any rank wants something now. Every rank must call this at the same point."""
        return wanted

    def check(self) -> None:
        """Raise if the run was asked to stop.

        Raises:
            Cancelled: asked by a person.
            Preempted: asked by the system.
        """
        if self._asked is not None:
            raise self._asked(STOPPED, GO_ON)


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


STOPPED = "stopped on request"


@contextmanager
def stop_at_boundaries(
    flag: StopFlag | None = None, preemption_signals: tuple[int, ...] = (signal.SIGTERM,)
) -> Iterator[StopFlag]:
    """Set ``flag``, or a new one, while the block runs, when a preemption signal or SIGINT comes.

    A thread other than the main one gets no signals, so there the flag stays unset.
    """
    flag = flag or StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        flag.ask(preempted=number != signal.SIGINT)

    before = {number: signal.signal(number, ask) for number in {*preemption_signals, signal.SIGINT}}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_when_preempted(preemption_signals: tuple[int, ...]) -> None:
    """Make the signals raise ``Preempted`` in the main thread: for the time before the first step.

    TensorFlow takes over SIGTERM when ranks find each other, so this is called again after that.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Preempted("stopped on request before the first step", GO_ON)

    for number in preemption_signals:
        signal.signal(number, stop)


@contextmanager
def end_at_second_signal(
    preemption_signals: tuple[int, ...] = (signal.SIGTERM,), *, has_parent: bool = False
) -> Iterator[None]:
    """End this process when a second signal that asks it to stop comes while the block runs.

    It ends with status 130 if one of the signals was SIGINT, else with 75, as after a single one. The run
    goes on from its last checkpoint when it is started again. In a thread other than the main one, which gets
    no signals, nothing happens.

    Args:
        preemption_signals: signals besides SIGINT.
        has_parent: a parent of ranks watches this process; then nothing happens either.
    """
    if has_parent or threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watched = {*preemption_signals, signal.SIGINT}
    watcher = threading.Thread(target=_watch, args=(reading, watched), name="second signal", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int, watched: set[int]) -> None:
    first_at: float | None = None
    error: type[Cancelled] = Preempted
    while number := os.read(reading, 1):
        if number[0] not in watched:
            continue
        if number[0] == signal.SIGINT:
            error = Cancelled
        now = time.monotonic()
        if first_at is None:
            first_at = now
        elif now - first_at > _SAME_REQUEST_SECONDS:
            message = f"error: ended at once, by a second signal\nremedy: {GO_ON}, at its last checkpoint\n"
            os.write(sys.stderr.fileno(), message.encode())
            os._exit(error.exit_code)
