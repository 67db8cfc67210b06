"""Waiting for what other threads and processes do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(holds: Callable[[], bool], seconds: float = 60.0, every: float = 0.02) -> bool:
    """Wait until something holds; whether it does. ``every`` is the pause between two looks (seconds)."""
    end = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(every)
    return held


def under_load(seconds: float) -> float:
    """A limit of time for a machine without other work, made longer by the load of this machine."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def before_its_end(find: Callable[[], T | None], has_ended: Callable[[], bool], seconds: float = 300.0) -> T:
    """Return what a process or a run makes, as soon as it is there. Fail as soon as its maker has ended.

    Args:
        find: looks for it; None if it is not there yet.
        has_ended: tells whether the process or the run has ended. Asked once a second.
        seconds: the longest time to wait.
    """
    end, ask_again, ended = time.monotonic() + seconds, time.monotonic(), False
    while (found := find()) is None:
        assert not ended, "the maker of what is awaited has ended without it"
        assert time.monotonic() < end, f"not there after {seconds} s"
        if time.monotonic() >= ask_again:
            ended, ask_again = has_ended(), time.monotonic() + 1
        time.sleep(0 if ended else 0.02)
    return found


def block_threads_end() -> bool:
    """Wait until no thread reads blocks in the background; whether that came to pass."""
    return eventually(lambda: all(thread.name != "shardmill-blocks" for thread in threading.enumerate()))
