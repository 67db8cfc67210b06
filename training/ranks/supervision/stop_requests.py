"""Signals that ask the parent of the ranks to stop: one to save and end, a second one to end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from shardmill.infra.errors import GO_ON, Cancelled, Preempted


class StopRequests:
    """The requests to stop that have come so far.

    Attributes:
        preempted: whether the first request came from the system, not from a person.
    """

    def __init__(self) -> None:
        self._number = 0
        self.preempted = False

    @property
    def asked(self) -> bool:
        """Whether the run shall stop."""
        return self._number > 0

    @property
    def at_once(self) -> bool:
        """Whether the run shall end without saving."""
        return self._number > 1

    def ask(self, *, preempted: bool) -> None:
        """Ask to stop."""
        if not self._number:
            self.preempted = preempted
        self._number += 1

    def error(self) -> Cancelled:
        """Return the error that ends the run after a request."""
        return (Preempted if self.preempted else Cancelled)("stopped on request", GO_ON)


@contextmanager
def stop_requests(preemption_signals: tuple[int, ...]) -> Iterator[StopRequests]:
    """Collect the ``preemption_signals`` and SIGINT while the block runs, in the main thread."""
    requests = StopRequests()
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        requests.ask(preempted=number != signal.SIGINT)

    before = {number: signal.signal(number, ask) for number in {*preemption_signals, signal.SIGINT}}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
