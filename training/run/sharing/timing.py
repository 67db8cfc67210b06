"""Time a step on all ranks at once. No framework."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from shardmill.training.ranks.peers import Peers

_LEAST_SECONDS = 1.0
_LEAST_STEPS = 5
_SKIPPED = 2  # the first call compiles, and the second may still choose algorithms


def seconds_of_step(step: Callable[[], object], ranks: Peers) -> float:
    """Return the median time of a step of this rank (seconds), while all ranks take theirs.

    Args:
        step: takes a step, and waits for the device.
        ranks: the ranks; every one must call this.
    """
    own: list[float] = []
    for _ in range(_SKIPPED):
        own = [_timed(step)]
    window = max(_LEAST_SECONDS, _LEAST_STEPS * max(ranks.all_values(own[0])))
    own.clear()
    until = time.perf_counter() + window
    while not own or time.perf_counter() < until:
        own.append(_timed(step))
    return statistics.median(own)


def _timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started
