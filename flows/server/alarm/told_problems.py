"""Tell people of each open problem of the platform once, and once when it is over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from shardmill.flows.problems import Problem, open_problems
from shardmill.flows.server.alarm import outbox
from shardmill.flows.server.alarm.destinations import PROBLEM, Destination
from shardmill.flows.server.alarm.kept_file import KeptFile
from shardmill.flows.server.alarm.sending import Message
from shardmill.infra.readable import readable_seconds

OPENED, CLOSED = "shardmill.problem.opened", "shardmill.problem.closed"
# A problem that comes back so soon after it was over is told when it has lasted for a while.
_SOON_SECONDS, _LASTS_SECONDS = 600.0, 120.0


class ToldProblems:
    """Compares the open problems with those that were told."""

    def __init__(self) -> None:
        self._kept = KeptFile("told.json", dict[str, Problem], "open problems are told again")
        self._told = self._kept.read({})
        self._over: dict[str, float] = {}

    def look(self, destinations: Mapping[str, Destination]) -> list[Message]:
        """Put messages about problems that began or are over into the outbox; return the messages."""
        now = time.time()
        found = {problem.key: problem for problem in open_problems()}
        begun = [
            problem
            for key, problem in found.items()
            if key not in self._told
            and (now - self._over.get(key, 0.0) > _SOON_SECONDS or now - problem.since > _LASTS_SECONDS)
        ]
        over = [problem for key, problem in self._told.items() if key not in found]
        told = [(problem, _opened(problem)) for problem in begun]
        told += [(problem, _closed(problem, now)) for problem in over]
        for problem, message in told:
            for destination in destinations.values():
                # Whom a message cannot reach is not told of that.
                is_about_it = problem.kind == "notification" and problem.subject == destination.name
                if destination.wants(PROBLEM) and not is_about_it:
                    outbox.put(message, destination, f"{problem.key} {message.event} {problem.since}")
        if told:
            self._over |= {problem.key: now for problem in over}
            ended = {problem.key for problem in over}
            kept = {key: problem for key, problem in self._told.items() if key not in ended}
            self._told = kept | {problem.key: problem for problem in begun}
            self._kept.write(self._told)
        return [message for _, message in told]


def _opened(problem: Problem) -> Message:
    return Message(str(problem), PROBLEM, OPENED, problem.subject, _iso(problem.since))


def _closed(problem: Problem, now: float) -> Message:
    text = f"Over after {readable_seconds(now - problem.since)}: {replace(problem, remedy='')}"
    return Message(text, PROBLEM, CLOSED, problem.subject, _iso(now))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
