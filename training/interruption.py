"""Stopping at a step boundary: a signal asks, the loop answers when its state is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from infra.errors import Cancelled


class StopRequest:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self._asked = False

    def ask(self) -> None:
        """Ask the run to stop at the next boundary."""
        self._asked = True

    def check(self) -> None:
        """Stop here if asked.

        Raises:
            Cancelled: asked.
        """
        if self._asked:
            raise Cancelled("stopped on request", "run the same command again: it goes on where it was")


@contextmanager
def stop_at_boundaries() -> Iterator[StopRequest]:
    """SIGTERM and SIGINT set the request, instead of what they did before, while the block runs.

    In a thread that gets no signals (a notebook's, a test's) the request is simply never asked by one.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def ask(_signum: int, _frame: FrameType | None) -> None:
        request.ask()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
