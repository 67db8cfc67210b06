"""Stop a run at a step boundary when a signal asks for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from infra.errors import GO_ON, Cancelled


class StopFlag:
    """Set when the run shall stop."""

    def __init__(self) -> None:
        self._asked = False

    def ask(self) -> None:
        """Ask the run to stop at the next boundary."""
        self._asked = True

    def check(self) -> None:
        """Raise ``Cancelled`` if the run was asked to stop.

        Raises:
            Cancelled: asked.
        """
        if self._asked:
            raise Cancelled("stopped on request", GO_ON)


@contextmanager
def stop_at_boundaries() -> Iterator[StopFlag]:
    """Yield a flag that SIGTERM and SIGINT set while the block runs.

    A thread other than the main one gets no signals, so there the flag stays unset.
    """
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def ask(_signum: int, _frame: FrameType | None) -> None:
        flag.ask()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
