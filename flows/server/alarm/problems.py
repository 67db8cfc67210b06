"""Find problems of schedules and of their folders; tell people of each open problem once, and of its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from shardmill.flows.flow_runs.api_requests import IN_PROGRESS, OWN, all_pages, run_filter
from shardmill.flows.problems import Problem, open_problems, set_problems
from shardmill.flows.scheduling.source_state import probe
from shardmill.flows.server.alarm import outbox
from shardmill.flows.server.alarm.destinations import PROBLEM, Destination, Message
from shardmill.flows.server.alarm.outbox import KeptFile
from shardmill.flows.server.automations import StoredSchedule, as_rule, is_rule
from shardmill.flows.server.schedules import as_schedule
from shardmill.infra.digests import digest_of
from shardmill.infra.readable import counted, readable_seconds
from shardmill.infra.storage.locations import public_location

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


_EVERY_SECONDS, _EVERY_SECONDS_OF_INBOX = 10.0, 20.0
_SHARE_OF_TIME, _LONGEST_PAUSE_SECONDS = 0.05, 60.0  # so much of the time is spent on listing
_HANGS_SECONDS = 30.0


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


@dataclass
class _Look:
    """The state of listing one source.

    Attributes:
        text: the problem that the last listing found; empty: none.
        began: start of the listing in progress (seconds of ``clock``); None: none is in progress.
        next_at: when the next listing is due (seconds of ``clock``).
        had_files: whether any listing found files.
    """

    text: str = ""
    began: float | None = None
    next_at: float = 0.0
    had_files: bool = False


@dataclass
class Sources:
    """Looks whether the folders of schedules and inboxes can still be listed.

    A folder that is deleted, unmounted, unreadable or behind expired credentials would otherwise look like
    one without new files. Each is listed on its own thread, since a lost network share may hang.

    Attributes:
        probe: returns whether a source has files; raises an error that says why it cannot be listed.
        clock: seconds that never go back.
    """

    probe: Callable[..., bool] = probe
    clock: Callable[[], float] = time.monotonic
    _looks: dict[str, _Look] = field(default_factory=dict)
    _kept: KeptFile[list[str]] = field(
        default_factory=lambda: KeptFile("sources.json", list[str], "an empty source is no problem")
    )
    _had_files: frozenset[str] | None = None

    def look(self, sources: Mapping[str, bool]) -> None:
        """Begin to look at the sources that are due, and open or close their problems.

        Args:
            sources: each source -> whether it is an inbox. A run of a schedule tells by itself if it cannot
                list a folder below the source; nothing runs while an inbox cannot be listed.
        """
        now = self.clock()
        if self._had_files is None:
            self._had_files = frozenset(self._kept.read([]))
        self._looks = {
            source: self._looks.get(source) or _Look(had_files=digest_of(source) in self._had_files)
            for source in sources
        }
        for source, look in self._looks.items():
            if look.began is None and now >= look.next_at:
                look.began = now
                work = partial(self._ask, source, look, is_inbox=sources[source])
                threading.Thread(target=work, name=f"look at {source}", daemon=True).start()
        problems = []
        for source, look in self._looks.items():
            text = self._wrong(look, now)
            if text:
                place = public_location(source)
                remedy = "mount or share it again, or renew its credentials; or pause its schedule"
                problems.append(Problem("source", place, f"{place}: {text}", remedy))
        set_problems("source", problems)
        # Those of schedules that are paused now are kept too.
        had_files = self._had_files.union(
            digest_of(source) for source, look in self._looks.items() if look.had_files
        )
        if had_files != self._had_files:
            self._had_files = had_files
            self._kept.write(sorted(had_files))

    def _wrong(self, look: _Look, now: float) -> str:
        if look.began is not None and now - look.began > _HANGS_SECONDS:
            return f"listing it has not ended after {_HANGS_SECONDS:.0f} s"
        return look.text

    def _ask(self, source: str, look: _Look, *, is_inbox: bool) -> None:
        began = self.clock()
        try:
            has_files = self.probe(source, fully=is_inbox)
        except Exception as error:  # noqa: BLE001  becomes a problem that people are told
            why = getattr(error, "message", None) or getattr(error, "strerror", None) or error
            look.text = f"it cannot be listed: {why}"
        else:
            is_lost = look.had_files and not has_files
            look.text = "it is empty, and had files before: is it mounted?" if is_lost else ""
            look.had_files = look.had_files or has_files
        took = self.clock() - began
        pause = _EVERY_SECONDS_OF_INBOX if is_inbox else _EVERY_SECONDS
        look.next_at = self.clock() + min(max(pause, took / _SHARE_OF_TIME), _LONGEST_PAUSE_SECONDS)
        look.began = None
