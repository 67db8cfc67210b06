"""Waiting for what other threads and processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait until something holds; whether it does."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def block_threads_end() -> bool:
    """Wait until no thread reads blocks in the background; whether that came to pass."""
    return eventually(lambda: all(thread.name != "shardmill-blocks" for thread in threading.enumerate()))
