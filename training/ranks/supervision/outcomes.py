"""How an attempt to train with several ranks ends, and the signals that ask their parent to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

from shardmill.infra.errors import GO_ON, Cancelled, Preempted, ShardmillError

Reason = Literal["signal", "stopped", "silent", "error", "exit", "loss", "machine"]


@dataclass(frozen=True, slots=True)
class Finished:
    """Rank 0 gave its result.

    Attributes:
        result: the result of rank 0.
        peak_rss_bytes: largest resident memory of all ranks together, each at its own peak.
    """

    result: dict[str, Any]
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """All ranks stopped on request, after a checkpoint if they had the time.

    Attributes:
        preempted: whether the system asked, not a person.
    """

    preempted: bool


@dataclass(frozen=True, slots=True)
class Regrown:
    """All ranks stopped, because more devices are available again.

    Attributes:
        in_time: whether they stopped by themselves, after a checkpoint; else they are ended without one.
    """

    in_time: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """A rank failed; all are ended. Its text says which rank it was, and why.

    Attributes:
        rank: number of the first rank that failed.
        num_ranks: the number of ranks of the attempt.
        reason: "signal": a signal ended it; "stopped": SIGSTOP; "silent": no step for too long; "error": it
            reported an error; "exit": it ended without saying why; "loss": the loss was not finite;
            "machine": its machine is gone.
        message: for people, with the signal, the error or the seconds of silence.
        step: steps of the run that it had done.
        error: the error that it reported, if any.
        last_step: steps of the run that the farthest rank had done.
        in_start: whether it failed before its first beat.
    """

    rank: int
    num_ranks: int
    reason: Reason
    message: str
    step: int
    error: ShardmillError | None
    last_step: int
    in_start: bool

    def to_result(self) -> dict[str, Any]:
        """Return the failure for the result of the run, JSON-able."""
        names = ("rank", "num_ranks", "reason", "message", "step")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.num_ranks} {self.message} (after step {self.step})"


Outcome = Finished | Stopped | Regrown | Failed


class StopRequests:
    """The requests to stop so far: the first one to save and to end, a second one to end at once.

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
