"""Find problems of schedules, and tell people of each open problem of the platform once, and of its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shardmill.flows.flow_runs.api_requests import IN_PROGRESS, OWN, all_pages, run_filter
from shardmill.flows.problems import Problem, open_problems
from shardmill.flows.server.alarm import outbox
from shardmill.flows.server.alarm.destinations import PROBLEM, Destination, Message
from shardmill.flows.server.alarm.kept_file import KeptFile
from shardmill.flows.server.automations import StoredSchedule, as_rule, is_rule
from shardmill.flows.server.schedules import as_schedule
from shardmill.infra.readable import counted, readable_seconds

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

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


# A worker takes a run up within seconds; a run that waits for a slot of its deployment is not late.
_LATE = timedelta(minutes=3)


def problem_of(schedule: StoredSchedule) -> Problem:
    """Return the problem of a schedule that has lost its parameters, with the command that mends it."""
    if schedule.flow == "train":
        rule = as_rule(schedule) if is_rule(schedule) else None
        dataset = rule.dataset if rule else str(schedule.stored.id)
        command = f"shardmill schedule add --dataset {dataset} --train --train-when CONDITIONS"
        return _lost(f"the training rule of {dataset}", command)
    found = as_schedule(schedule)
    words = ["shardmill schedule add", "--maintain" if found.flow == "maintain" else "SOURCE"]
    words += ["--dataset", found.dataset or "NAME"]
    words += ["--train"] if found.flow == "pipeline" else []
    words += ["--name", found.name] if found.name else []
    if found.every is not None:
        words += ["--every", f"{found.every.total_seconds():g}s"]
    elif found.cron is not None:
        words += ["--cron", f'"{found.cron}"', "--timezone", found.timezone or "UTC"]
    name = f" {found.name}" if found.name else ""
    return _lost(f"the schedule{name} of {found.dataset}", " ".join(words))


def _lost(what: str, command: str) -> Problem:
    return Problem("schedule", what, f"{what} has lost its parameters", f"set it again: {command}")


def late_runs(client: SyncPrefectClient, now: datetime) -> list[Problem]:
    """Return a problem for each deployment that has overdue runs and none in progress."""
    late = run_filter(**OWN, state={"name": {"any_": ["Late"]}}, expected_start_time={"before_": now - _LATE})
    runs = all_pages(
        lambda limit, offset: client.read_flow_runs(flow_run_filter=late, limit=limit, offset=offset)
    )
    if not runs:
        return []
    works = run_filter(**OWN, **IN_PROGRESS)
    busy = {run.deployment_id for run in client.read_flow_runs(flow_run_filter=works)}
    problems = []
    for deployment in {run.deployment_id for run in runs} - busy:
        waiting = [run for run in runs if run.deployment_id == deployment]
        due = min(run.expected_start_time for run in waiting if run.expected_start_time is not None)
        names = sorted({str(run.parameters.get("dataset") or run.name) for run in waiting})
        text = (
            f"{counted(len(waiting), 'run')} of {', '.join(names)} did not begin; the first was due at "
            f"{due:%Y-%m-%d %H:%M} UTC"
        )
        remedy = "see whether a worker is alive: shardmill status"
        problems.append(Problem("schedule", f"runs of {deployment}", text, remedy))
    return problems
