"""The interface of all launchers: how the parent of the ranks places, starts and watches them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shardmill.infra.errors import ShardmillError
from shardmill.infra.progress import Event
from shardmill.training.ranks.heartbeat import Beat
from shardmill.training.ranks.supervision.slots import Slot

OnEvent = Callable[[int, Event], None]


@dataclass(frozen=True, slots=True)
class RankJob:
    """The command and environment of the ranks of an attempt.

    Attributes:
        command: the command of a rank.
        log_folder: the folder of their logs, ``rank-<number>.log``, on the machine of the parent.
        scratch: a folder on the machine of the parent; it is removed after the training.
    """

    command: Sequence[str]
    log_folder: Path
    scratch: Path

    def log_path(self, rank: int) -> Path:
        """Return the path of the file for the output of a rank."""
        return self.log_folder / f"rank-{rank}.log"


class RunningRank(Protocol):
    """A started rank on any machine. No method waits for the rank."""

    @property
    def rank(self) -> int:
        """Its number."""

    @property
    def ended_at(self) -> float | None:
        """The time when the parent first saw that it had ended (monotonic seconds); None: it runs."""

    @property
    def beat(self) -> Beat:
        """The rank's latest heartbeat; ``at`` has no meaning on another machine."""

    def silent_seconds(self) -> float:
        """Return the time since its latest sign of life, or since its start (seconds)."""

    def idle_seconds(self) -> float:
        """Return for how long it has been silent while its processes used no processor (seconds)."""

    def stopped_seconds(self) -> float:
        """Return for how long it has been stopped by SIGSTOP (seconds); 0: it is not stopped."""

    def poll(self) -> int | None:
        """Return its exit status; negative: the signal that ended it; None: it runs."""

    @property
    def lost(self) -> str | None:
        """The reason why the rank is lost, such as that its machine is gone; None if it is not."""

    @property
    def result(self) -> dict[str, Any] | None:
        """The result that it reported."""

    @property
    def error(self) -> ShardmillError | None:
        """The error that it reported."""

    @property
    def last_lines(self) -> str:
        """The last lines that it printed."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to all processes that it started."""

    def close(self) -> None:
        """Kill the rank's processes that still run, and release its resources."""


class RankHosts(Protocol):
    """The places for ranks. Places appear and disappear with their machines and devices."""

    def choose(self, is_wanted: Callable[[], bool] = lambda: True) -> list[Slot]:
        """Return the places of the next attempt, one for each rank. It may wait for them.

        Args:
            is_wanted: returns whether the training is still wanted; if not, the list may be empty.

        Raises:
            EnvironmentFault: too few places are left.
        """

    def has_more_than(self, used: Sequence[Slot]) -> bool:
        """Return whether there are more places than ``used``. It looks only now and then."""

    def note_failed_start(self, slot: Slot) -> None:
        """Note that the rank of ``slot`` failed before it began to train."""

    def note_progress(self) -> None:
        """Note that an attempt took new steps: places that were left out may be tried again."""

    def start(self, job: RankJob, slots: Sequence[Slot], on_event: OnEvent) -> Iterator[RunningRank]:
        """Start a rank in each of the places that ``choose`` returned last, and yield each.

        Args:
            job: the work of the ranks.
            slots: their places, by rank.
            on_event: is called with the number of a rank and its event, on another thread.

        Raises:
            RankLost: a machine was lost meanwhile; the ranks that were already yielded still run.
        """
