"""The actor that runs one rank on a machine of the cluster; ``ray.remote`` wraps its class.

The rank is a child of the actor's process, with the same lifeline as under a parent of its own machine, so it
dies with the actor however that ends: with the machine's Ray, with the training, or when the parent does not
ask for so long that it must have given up.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardmill.infra.processes.ports import free_port
from shardmill.infra.progress import Event
from shardmill.training.ranks.supervision.running_rank import RankProcess, RankStart, RankState

# The parent gives up on a machine that is silent for so long, and its ranks must be gone by then.
ANSWER_SECONDS = 60.0

_WATCH_SECONDS = 1.0
_LONGEST_TEXT = 1 << 18


@dataclass(frozen=True, slots=True)
class Look:
    """A rank at one look of its parent.

    Attributes:
        state: its state.
        events: its events since the last look.
        printed: its output since the last look.
    """

    state: RankState
    events: Sequence[Event]
    printed: bytes


class RankAgent:
    """Starts and watches one rank on the machine where it lives.

    Before the rank starts, the agent waits as long as the other machines need; Ray ends it with its parent.

    Args:
        answer_seconds: a started rank ends when the parent has not looked for so long.
    """

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        self._scratch = tempfile.TemporaryDirectory(prefix="shardmill-rank-")
        self._rank: RankProcess | None = None
        self._events: deque[Event] = deque()  # filled on another thread
        self._read_bytes = 0
        self._looked_at = 0.0
        self._closed = threading.Event()

    def address(self) -> str:
        """Return ``host:port`` for the rank's server: this machine in the cluster, and a free port."""
        import ray  # here, so that tests of the agent need no Ray

        host = ray.util.get_node_ip_address()
        return f"{host}:{free_port(host)}"

    def sees(self, folder: str) -> bool:
        """Return whether a folder is there on this machine."""
        return Path(folder).is_dir()

    def start(self, rank: int, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start the rank, with the interpreter of this machine.

        Args:
            rank: its number.
            command: its command; the first word is replaced.
            variables: environment variables.
        """
        scratch = Path(self._scratch.name)
        command, variables = [sys.executable, *command[1:]], {**variables, "TMPDIR": str(scratch)}
        start = RankStart(rank, command, variables, self._log, scratch / "heartbeat")
        self._rank = RankProcess(start, lambda _rank, event: self._events.append(event))
        self._looked_at = time.monotonic()
        threading.Thread(target=self._end_without_parent, daemon=True).start()

    def look(self) -> Look:
        """Look at the rank."""
        self._looked_at = time.monotonic()
        state = self._started().look()  # first, so that after its end none of its events is missed
        events = [self._events.popleft() for _ in range(len(self._events))]
        return Look(state, events, self._printed(everything=state.status is not None))

    def signal(self, number: int) -> None:
        """Send a signal to the rank and to all processes that it started."""
        self._started().signal(signal.Signals(number))

    def close(self) -> None:
        """Kill what still runs of the rank, and remove its files."""
        self._closed.set()
        if self._rank is not None:
            self._rank.close()
        self._scratch.cleanup()

    @property
    def _log(self) -> Path:
        return Path(self._scratch.name) / "log"

    def _started(self) -> RankProcess:
        if self._rank is None:
            raise RuntimeError("the rank was not started")
        return self._rank

    def _printed(self, *, everything: bool) -> bytes:
        if not self._log.exists():
            return b""
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read(-1 if everything else _LONGEST_TEXT)
        self._read_bytes += len(text)
        return text

    def _end_without_parent(self) -> None:
        """End this process, and the rank with it, once the parent has given up on this machine."""
        while not self._closed.wait(min(_WATCH_SECONDS, self._answer_seconds)):
            if time.monotonic() - self._looked_at > self._answer_seconds:
                os._exit(1)
