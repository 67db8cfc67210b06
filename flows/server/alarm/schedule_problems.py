"""Name the problems of schedules: lost parameters, and runs that nothing takes up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shardmill.flows.flow_runs.api_requests import all_pages, in_progress
from shardmill.flows.flow_runs.own_runs import own_runs
from shardmill.flows.problems import Problem
from shardmill.flows.server.automations.schedule_parameters import StoredSchedule
from shardmill.flows.server.automations.training_rules import as_rule, is_rule
from shardmill.flows.server.schedules import as_schedule
from shardmill.infra.readable import counted

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

# A worker takes a run up within seconds; a run that waits for a slot of its deployment is not late.
_LATE = timedelta(minutes=3)


def problem_of(schedule: StoredSchedule) -> Problem:
    """The problem of a schedule whose parameters nobody knows, with the command that mends it."""
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
    """A problem for each deployment whose runs are overdue while none of them works."""
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterExpectedStartTime,
        FlowRunFilterState,
        FlowRunFilterStateName,
    )

    late = FlowRunFilter(
        tags=own_runs(),
        state=FlowRunFilterState(name=FlowRunFilterStateName(any_=["Late"])),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=now - _LATE),
    )
    runs = all_pages(
        lambda limit, offset: client.read_flow_runs(flow_run_filter=late, limit=limit, offset=offset)
    )
    if not runs:
        return []
    works = FlowRunFilter(tags=own_runs(), state=in_progress())
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
