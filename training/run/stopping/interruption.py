"""Stop a run at a step boundary when a signal asks for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Literal

from shardmill.infra.errors import GO_ON, Cancelled, Preempted
from shardmill.training.ranks.heartbeat import Work

STOPPED = "stopped on request"


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
