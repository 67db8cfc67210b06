"""Run the watch service: it sends messages about runs and problems, and takes up the files of inboxes.

`shardmill up` runs it; on a server of your own, one process beside a worker::

    python -m shardmill.flows.server.service_process watch
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx

from shardmill.flows.flow_runs.api_requests import prefect_client
from shardmill.flows.problems import Problem, close_problem, open_problem, set_problems
from shardmill.flows.scheduling.inboxes import read_inboxes, watch_inboxes
from shardmill.flows.server import services
from shardmill.flows.server.alarm.destinations import (
    Destination,
    Message,
    read_destinations,
    take_over_automations,
)
from shardmill.flows.server.alarm.history import History, emit_problems
from shardmill.flows.server.alarm.outbox import Sender
from shardmill.flows.server.alarm.problems import Sources, ToldProblems, late_runs, problem_of
from shardmill.flows.server.automations import heal_schedules
from shardmill.flows.server.running_up import up_process

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


LOG = logging.getLogger("shardmill.alarm")

_LOOK_SECONDS, _HISTORY_SECONDS, _SCHEDULES_SECONDS = 1.0, 2.0, 6.0
_AWAY_SECONDS = 30.0  # a server that does not answer for so long is a problem
_STILL_SECONDS = 120.0  # so is a `shardmill up` that does nothing for so long: it may wait for its server


def watch() -> None:
    """Watch until this process ends."""
    server = _ServerWatch()
    told, sender, sources, up = ToldProblems(), Sender(), Sources(), _UpWatch()

    def look() -> None:
        if server.sources is not None:
            sources.look(server.sources)
        up.look()
        destinations = server.destinations
        if destinations is not None:
            server.problem_messages += told.look(destinations)
            sender.look(destinations)
        services.beat(services.WATCH)

    for name, work in (("inboxes", watch_inboxes), ("history", server.watch)):
        threading.Thread(target=_again_and_again, args=(work,), name=name, daemon=True).start()
    _again_and_again(look)


def _again_and_again(work: Callable[[], None]) -> None:
    """Do it until this process ends; an error, such as a full disk, is logged, and must end nothing."""
    said = ""
    while True:
        try:
            work()
        except Exception as error:
            if str(error) != said:
                LOG.exception("%s: goes on", threading.current_thread().name)
            said = str(error)
        time.sleep(_LOOK_SECONDS)


class _ServerWatch:
    """Reads ended runs, destinations of messages, and schedules from Prefect's server.

    It has a thread of its own, so that a server that hangs holds up no message.

    Attributes:
        destinations: by their names; None: not known yet.
        sources: the folder of each active schedule or inbox -> whether it is that of an inbox; None: not
            known yet.
        problem_messages: messages about problems whose events are still to be emitted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.destinations: dict[str, Destination] | None = None
        self.sources: dict[str, bool] | None = None
        self.problem_messages: list[Message] = []
        self._clock = clock
        self._history = History()
        self._answered = clock()
        self._schedules_at = 0.0

    def watch(self) -> None:
        """Look again and again until the server does not answer.

        Raises:
            Exception: what happened cannot be read; people are told if that lasts.
        """
        try:
            with prefect_client() as client:
                take_over_automations(client)
                while True:
                    self.look(client)
                    time.sleep(_HISTORY_SECONDS)
        except httpx.HTTPError as error:
            self._is_away(f"does not answer: {error or type(error).__name__}")
        except Exception as error:
            self._is_away(f"is not understood: {type(error).__name__}: {error}")
            raise

    def look(self, client: SyncPrefectClient) -> None:
        """Look once.

        Raises:
            httpx.HTTPError: the server does not answer.
        """
        self.destinations = {one.name: one for one in read_destinations(client)}
        self._history.look(client, self.destinations)
        if self._clock() >= self._schedules_at:
            self._look_at_schedules(client)
            self._schedules_at = self._clock() + _SCHEDULES_SECONDS
        messages = self.problem_messages[:]
        emit_problems(client, messages)
        del self.problem_messages[: len(messages)]
        self._answered = self._clock()
        close_problem("service", services.SERVER)

    def _look_at_schedules(self, client: SyncPrefectClient) -> None:
        schedules = heal_schedules(client)
        of_schedules = [
            one.parameters["source"] for one in schedules if one.stored.active and "source" in one.parameters
        ]
        of_inboxes = [inbox.source for inbox in read_inboxes(client) if inbox.is_active]
        self.sources = dict.fromkeys(map(str, of_schedules), False) | dict.fromkeys(of_inboxes, True)
        broken = [problem_of(one) for one in schedules if not one.parameters]
        set_problems("schedule", [*broken, *late_runs(client, datetime.now(UTC))])

    def _is_away(self, why: str) -> None:
        if self._clock() - self._answered > _AWAY_SECONDS:
            text = f"{services.SERVER} {why}"
            open_problem(Problem("service", services.SERVER, text, "see server.log and `shardmill status`"))


class _UpWatch:
    """Notes whether the `shardmill up` above this process still does its work."""

    def __init__(self) -> None:
        self._beat, self._since = services.last_beat(services.UP), time.monotonic()

    def look(self) -> None:
        beat, now = services.last_beat(services.UP), time.monotonic()
        if beat != self._beat:
            self._beat, self._since = beat, now
            close_problem("service", services.UP)
        elif beat is not None and now - self._since > _STILL_SECONDS and up_process() == os.getppid():
            text = f"shardmill up (process {os.getppid()}) does nothing: it starts no service again"
            remedy = f"kill -CONT {os.getppid()}, or kill -9 and start it again"
            open_problem(Problem("service", services.UP, text, remedy))
