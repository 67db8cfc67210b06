"""Show the first page: the state of the platform and failures, then running, new and scheduled runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from shardmill.flows.page.pages.charts import small_chart
from shardmill.flows.page.platform import Disk, Platform
from shardmill.flows.page.reading.prefect import FAILURES_DAYS, Activity, FlowRun
from shardmill.flows.page.reading.runs import RunRow
from shardmill.flows.page.rendering import ago, render
from shardmill.flows.problems import Problem, open_problems
from shardmill.infra.dataset.views.references import parse_joined
from shardmill.infra.errors import ShardmillError, UsageError
from shardmill.infra.readable import counted

_NEWEST = 8
_LIVE_RUNS = 6
_LEAST_FREE = 0.05
SEEN_COOKIE = "shardmill_seen"
_TRAINING_FLOWS = ("train", "train-torch", "pipeline")

Training = tuple[RunRow, Any]  # with the picture of its curve


async def show(request: Request) -> Response:
    """Return the whole page."""
    values = await _values(request)
    return await run_in_threadpool(render, request, "overview.html.j2", title="Overview", **values)


async def live(request: Request) -> Response:
    """Return the part of the page that is updated while one looks at it."""
    values = await _values(request)
    return await run_in_threadpool(render, request, "overview_live.html.j2", **values)


async def _values(request: Request) -> dict[str, Any]:
    platform: Platform = request.app.state.platform
    found, values = await asyncio.gather(platform.activity(), run_in_threadpool(_from_folders, platform))
    activity = found if isinstance(found, Activity) else None
    away = found if isinstance(found, str) else None if activity is None else activity.problem
    work, alone = with_trainings(activity.running if activity else [], values["trainings"])
    seen = _seen_until(request.cookies.get(SEEN_COOKIE))
    failed = failures(activity.failed if activity else [], seen)
    problems = open_problems()
    is_empty = not (values["newest"] or values["problem"] or work or alone or failed)
    more = {
        "activity": activity,
        "away": away,
        "work": work,
        "trainings": alone,
        "failed": failed,
        "seen_cookie": SEEN_COOKIE,
        "now": time.time(),
        "problems": problems,
        "health": health(activity, away, failed, problems, values["disks"]),
        "is_empty": is_empty and not (activity and (activity.coming or activity.ended or activity.inboxes)),
    }
    return {**values, **more}


def _seen_until(cookie: str | None) -> float:
    """Return when a person last marked the failures as seen (seconds since 1970); by default yesterday."""
    now = datetime.now().astimezone()
    yesterday = (now - timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    try:
        said = float(cookie or "")
    except ValueError:
        return yesterday
    return said if now.timestamp() - FAILURES_DAYS * 86400 < said <= now.timestamp() else yesterday


@dataclass(frozen=True, slots=True)
class Failure:
    """Failures of the same thing with the same message: the latest one, and how many there were."""

    run: FlowRun
    count: int


def failures(runs: Sequence[FlowRun], since: float) -> list[Failure]:
    """Return the failures since a time (seconds since 1970), the newest first, repeated ones as one."""
    found: dict[tuple[str, str], list[FlowRun]] = {}
    for run in runs:
        if run.is_failure and (run.ended or run.begins) > since:
            found.setdefault((run.title, run.message.partition("\n")[0]), []).append(run)
    return [Failure(same[0], len(same)) for same in found.values()]


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the platform in one sentence, and whether all is well."""

    words: str
    is_well: bool


def health(
    activity: Activity | None,
    away: str | None,
    failed: Sequence[Failure],
    problems: Sequence[Problem],
    disks: Sequence[Disk],
) -> Health:
    """Describe the platform in one sentence: its problems, else what runs now and next."""
    wrong = []
    if away:
        wrong.append("Prefect's server does not answer")
    if problems:
        wrong.append(f"{counted(len(problems), 'problem')} of the platform")
    if failed:
        wrong.append(f"{counted(sum(each.count for each in failed), 'run')} failed that nobody has seen")
    if activity and not any(worker.is_alive for worker in activity.workers):
        wrong.append("no worker takes up runs")
    wrong += [
        f"the disk of the {disk.holds} is nearly full"
        for disk in disks
        if disk.free_bytes < _LEAST_FREE * disk.total_bytes
    ]
    if wrong:
        return Health("Look here: " + ", ".join(wrong), is_well=False)
    if activity is None:
        return Health("Nothing is known to be wrong", is_well=True)
    now = f"{counted(len(activity.running), 'run')} at work" if activity.running else "nothing runs now"
    coming = activity.coming[0] if activity.coming else None
    then = f", and {coming.title} begins {ago(coming.begins)}" if coming and coming.begins else ""
    return Health(f"All is well: {now}{then}", is_well=True)


def with_trainings(
    running: Sequence[FlowRun], trainings: Sequence[Training]
) -> tuple[list[tuple[FlowRun, list[Training]]], list[Training]]:
    """Put each training under the flow run that trains on its dataset.

    Returns:
        Flow runs with their trainings, and the trainings that belong to none of them.
    """
    left, work = list(trainings), []
    for run in running:
        dataset = _name(run.parameters.get("dataset")) if run.flow in _TRAINING_FLOWS else ""
        own = [training for training in left if dataset and _name(training[0].dataset) == dataset]
        left = [training for training in left if training not in own]
        work.append((run, own))
    return work, left


def _name(ref: object) -> str:
    try:
        return parse_joined(str(ref or "")).name
    except UsageError:
        return ""


def _from_folders(platform: Platform) -> dict[str, Any]:
    newest, problem = [], None
    try:
        newest = platform.datasets.newest_rows(_NEWEST)
    except ShardmillError as error:
        problem = str(error)
    live_runs = platform.runs.live()[:_LIVE_RUNS]
    return {
        "root": platform.datasets.uri,
        "runs_folder": platform.runs.uri,
        "newest": newest,
        "problem": problem,
        "trainings": [(row, _chart(platform, row)) for row in live_runs],
        "disks": platform.disks(),
    }


def _chart(platform: Platform, row: RunRow) -> Any:
    try:
        return small_chart(platform.runs.curves(row.name))
    except (ShardmillError, OSError):
        return ""
