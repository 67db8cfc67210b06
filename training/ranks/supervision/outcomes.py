"""The outcome of an attempt to train with several ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from shardmill.infra.errors import ShardmillError

Reason = Literal["signal", "stopped", "silent", "error", "exit", "loss", "machine"]


@dataclass(frozen=True, slots=True)
class RankFailure:
    """The first rank that failed in an attempt, and why.

    Attributes:
        rank: its number.
        num_ranks: the number of ranks of the attempt.
        reason: "signal": a signal ended it; "stopped": SIGSTOP; "silent": no step for too long; "error": it
            reported an error; "exit": it ended without saying why; "loss": the loss was not finite;
            "machine": its machine is gone.
        message: for people, with the signal, the error or the seconds of silence.
        step: steps of the run that were done.
        error: the error that the rank reported, if any.
    """

    rank: int
    num_ranks: int
    reason: Reason
    message: str
    step: int
    error: ShardmillError | None = None

    def to_result(self) -> dict[str, Any]:
        """Return the failure for the result of the run, JSON-able."""
        return {name: value for name, value in asdict(self).items() if name != "error"}

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.num_ranks} {self.message} (after step {self.step})"


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
    """A rank failed, and all were ended.

    Attributes:
        failure: the first rank that failed, and why.
        step: steps of the run that were done, by the farthest rank.
        in_start: whether the rank failed before its first beat.
    """

    failure: RankFailure
    step: int
    in_start: bool


Outcome = Finished | Stopped | Regrown | Failed
