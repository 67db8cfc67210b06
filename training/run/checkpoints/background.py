"""Run pieces of work one after the other in a thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundWork:
    """At most one piece of work at a time, in the order in which it is given.

    The error of a piece of work is raised by the next call, in the thread that makes it.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._current: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start ``work`` as soon as the work before it is done; wait for that."""
        self.wait()
        self._current = self._thread.submit(work)

    def wait(self) -> None:
        """Wait until all work is done, and raise its error, if any."""
        current, self._current = self._current, None
        if current is not None:
            current.result()

    def close(self) -> None:
        """Wait until all work is done, raise its error, if any, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
