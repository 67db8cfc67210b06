"""A rank on a machine of a Ray cluster, as its parent sees it."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from shardmill.infra.errors import ShardmillError
from shardmill.training.ranks.heartbeat import Beat
from shardmill.training.ranks.launchers.ray.agent import ANSWER_SECONDS, Look
from shardmill.training.ranks.supervision.hosts import OnEvent

_LOOK_SECONDS = 0.1
# Looks of very many ranks together take no more than a part of the parent's time.
_SECONDS_A_RANK = 0.002
_CLOSE_SECONDS = 10.0
_LOST_STATUS = -int(signal.SIGKILL)
_LINE_CHARACTERS = 200


class RemoteRank:
    """A running rank; see ``RunningRank``. Asks its agent without waiting for the answer.

    Attributes:
        rank: its number.
        ended_at: when it was first seen to have ended (monotonic seconds); None: it runs.
        lost: why it cannot be watched any more; None: it can.
    """

    def __init__(
        self, rank: int, num_ranks: int, agent: Any, machine: str, log_path: Path, on_event: OnEvent
    ) -> None:
        """Watch the rank that ``agent`` runs on ``machine``."""
        self.rank = rank
        self.ended_at: float | None = None
        self.lost: str | None = None
        self._agent, self._machine = agent, machine
        self._log_path, self._on_event = log_path, on_event
        self._every = max(_LOOK_SECONDS, _SECONDS_A_RANK * num_ranks)
        self._asked: Any = None
        self._asked_at = self._answered_at = time.monotonic()
        self._seen: Look | None = None

    @property
    def beat(self) -> Beat:
        """The rank's latest heartbeat; ``at`` is by the clock of its machine."""
        return Beat() if self._seen is None else self._seen.beat

    def silent_seconds(self) -> float:
        """Return the time since its latest sign of life, or since its start."""
        self.poll()
        return self._since(0.0 if self._seen is None else self._seen.silent_seconds)

    def idle_seconds(self) -> float:
        """Return for how long it has been seen silent, and its processes without use of a processor."""
        self.poll()
        return 0.0 if self._seen is None else self._seen.idle_seconds

    def stopped_seconds(self) -> float:
        """Return for how long it has been seen stopped by SIGSTOP; 0: it is not."""
        self.poll()
        stopped = 0.0 if self._seen is None else self._seen.stopped_seconds
        return self._since(stopped) if stopped else 0.0

    def poll(self) -> int | None:
        """Return its exit status; negative: the signal that ended it, or it is lost; None: it runs."""
        if self.ended_at is None:
            self._ask()
            if self.lost is not None or (self._seen is not None and self._seen.status is not None):
                self.ended_at = time.monotonic()
        if self.lost is not None:
            return _LOST_STATUS
        return None if self._seen is None else self._seen.status

    @property
    def result(self) -> dict[str, Any] | None:
        """The result that it reported."""
        return None if self._seen is None else self._seen.result

    @property
    def error(self) -> ShardmillError | None:
        """The error that it reported."""
        return None if self._seen is None else self._seen.error

    @property
    def last_lines(self) -> str:
        """The last lines that it printed."""
        return "" if self._seen is None else self._seen.last_lines

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to all processes that it started."""
        if self.poll() is None:
            self._agent.signal.remote(int(number))

    def close(self) -> None:
        """Kill the processes of the rank that still run, and its agent."""
        if self.lost is None:
            with contextlib.suppress(RayError):
                ray.get(self._agent.close.remote(), timeout=_CLOSE_SECONDS)
        ray.kill(self._agent)

    def _since(self, seconds: float) -> float:
        return seconds + time.monotonic() - self._answered_at

    def _ask(self) -> None:
        """Take the answer to the last request if it has come, and send the next one if it is time."""
        now = time.monotonic()
        if self._asked is None:
            if now - self._asked_at >= self._every:
                self._asked, self._asked_at = self._agent.look.remote(), now
            return
        ready, _ = ray.wait([self._asked], timeout=0)
        if not ready:
            if now - self._answered_at > ANSWER_SECONDS:
                self.lost = (
                    f"is lost: its machine {self._machine} has not answered for {ANSWER_SECONDS:.0f} s"
                )
            return
        try:
            self._take(ray.get(self._asked))
        except RayError as error:
            said = " ".join(str(error).split())[:_LINE_CHARACTERS]
            self.lost = f"is lost with its machine {self._machine} or its Ray worker there: {said}"
        self._asked = None

    def _take(self, look: Look) -> None:
        self._answered_at = time.monotonic()
        if look.printed:
            with self._log_path.open("ab") as log:
                log.write(look.printed)
        for event in look.events:
            self._on_event(self.rank, event)
        self._seen = look
