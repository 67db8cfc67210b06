"""Keep a service of `shardmill up` running: start it again when it ends, until it ends too often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from shardmill.flows.problems import Problem, close_problem, open_problem
from shardmill.infra.errors import EnvironmentFault

if TYPE_CHECKING:
    from shardmill.flows.server.services import Service

# A service is given up if it ends three times in a row, each time sooner than this after its start.
_LIVED_SECONDS = 30.0
_SHORT_LIVES = 3
_RESTART_SECONDS = 2.0
# A service that shows no sign of life for so long hangs. Before its first sign it may take longer: it starts.
_PROBE_SECONDS, _HANGS_SECONDS, _STARTS_SECONDS = 5.0, 40.0, 300.0
_HELD_UP_SECONDS = 10.0

Say = Callable[[str], None]


def _no_need() -> None:
    """Need nothing."""


@dataclass(slots=True)
class KeptService:
    """A service, and how often it has ended.

    Attributes:
        name: its name in messages.
        start: starts its process.
        say: prints a message for people.
        need: raises an error while something that the service needs is unavailable.
        is_optional: whether the platform works without it.
        is_wanted: whether it is to run.
        process: its process; None while it does not run.
        clock: returns the time (seconds).
    """

    name: str
    start: Callable[[], Service]
    say: Say
    need: Callable[[], None] = _no_need
    is_optional: bool = False
    is_wanted: bool = True
    process: Service | None = None
    clock: Callable[[], float] = time.monotonic
    _started: float = 0.0
    _not_before: float = 0.0
    _short_lives: int = 0
    _said: str = ""
    _probe: threading.Thread | None = None
    _probed: float = 0.0
    _looked: float = 0.0
    _sign: object = None
    _sign_at: float | None = None

    def begin(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            EnvironmentFault: It ended at once, or does not answer.
        """
        self.launch().wait_until_healthy()

    def launch(self) -> Service:
        """Start its process, which need not answer yet."""
        self._started = self._probed = self.clock()
        self._sign_at = None
        self.process = self.start()
        return self.process

    def stop(self) -> None:
        """End it, with all its processes."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    @property
    def is_given_up(self) -> bool:
        """Whether it has ended too often."""
        return self._short_lives >= _SHORT_LIVES

    def keep(self) -> None:
        """Check it once. If it has ended or hangs, end its processes, and start it again a moment later.

        Raises:
            EnvironmentFault: It ended again and again, and the platform cannot work without it.
        """
        if self.process is not None and self.process.has_ended:
            self._end(self.process, f"{self.name} ended with status {self.process.process.returncode}")
        elif self.process is not None and self._hangs(self.process):
            text = f"{self.name} hangs: no sign of life for {_HANGS_SECONDS:.0f} s"
            open_problem(Problem("service", self.name, text, "it is started again; see its log"))
            self._end(self.process, text)
        if self.process is None and self.is_wanted and self.clock() >= self._not_before:
            self._begin_again()

    def _hangs(self, process: Service) -> bool:
        """Tell whether it hangs; ask it for a sign of life now and then, on a thread: that may take long."""
        now = self.clock()
        if self._sign_at is not None and now - self._looked > _HELD_UP_SECONDS:
            self._sign_at = now  # `up` itself was held up, so nobody looked
        self._looked = now
        if now - self._probed >= _PROBE_SECONDS and not (self._probe and self._probe.is_alive()):
            self._probed = now
            self._probe = threading.Thread(target=self._ask, args=(process,), name=self.name, daemon=True)
            self._probe.start()
        patience = _STARTS_SECONDS if self._sign_at is None else _HANGS_SECONDS
        return now - (self._sign_at or self._started) > patience

    def _ask(self, process: Service) -> None:
        sign = process.sign_of_life()
        if sign is not None and sign != self._sign and process is self.process:
            self._sign, self._sign_at = sign, self.clock()
            close_problem("service", self.name)

    def _end(self, process: Service, ended: str) -> None:
        self.stop()
        lived = self.clock() - self._started
        self._short_lives = self._short_lives + 1 if lived < _LIVED_SECONDS else 0
        if not self.is_given_up:
            self._not_before = self.clock() + _RESTART_SECONDS
            self.say(f"{ended}; starting it again (see {process.log_path})")
        elif self.is_optional:
            self.is_wanted = False
            remedy = f"see {process.log_path}; then: shardmill down; shardmill up --detach"
            open_problem(Problem("service", self.name, f"{ended} again and again; it is given up", remedy))
            self.say(f"{ended} again and again; the platform goes on without it (see {process.log_path})")
        else:
            process.check(self.name)

    def _begin_again(self) -> None:
        """Start it. While something that it needs is unavailable, say so once instead.

        Raises:
            EnvironmentFault: It fails again and again although everything that it needs is available.
        """
        from prefect.exceptions import ObjectNotFound

        try:
            self.need()
        except (httpx.HTTPError, ObjectNotFound, EnvironmentFault) as error:
            self._say_later(getattr(error, "message", None) or str(error))
            return
        try:
            self.begin()
        except EnvironmentFault as error:
            self._short_lives += 1
            self.stop()
            if self.is_given_up:
                raise
            self._say_later(error.message.splitlines()[0])
            return
        self._said = ""

    def _say_later(self, reason: str) -> None:
        if reason != self._said:
            self.say(f"{self.name} starts later: {reason}")
            open_problem(Problem("service", self.name, f"{self.name} cannot be started: {reason}"))
        self._said = reason
