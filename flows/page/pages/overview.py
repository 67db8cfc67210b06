"""The first page: running, new and scheduled runs, and the state of the services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from flows.page.pages.charts import small_chart
from flows.page.platform import Platform
from flows.page.reading.prefect import Activity, FlowRun
from flows.page.reading.runs import RunRow
from flows.page.rendering import render
from infra.errors import ShardmillError

_NEWEST = 8
_LIVE_RUNS = 6
_TRAINING_FLOWS = ("train", "train-torch", "pipeline")

Training = tuple[RunRow, Any]  # with the picture of its curve


async def show(request: Request) -> Response:
    """Return the whole page."""
    values = await _values(request.app.state.platform)
    return await run_in_threadpool(render, request, "overview.html.j2", title="Overview", **values)


async def live(request: Request) -> Response:
    """Return the part of the page that is updated while one looks at it."""
    values = await _values(request.app.state.platform)
    return await run_in_threadpool(render, request, "overview_live.html.j2", **values)


async def _values(platform: Platform) -> dict[str, Any]:
    found = await platform.activity()
    values = await run_in_threadpool(_from_folders, platform)
    activity = found if isinstance(found, Activity) else None
    work, alone = with_trainings(activity.running if activity else [], values["trainings"])
    return values | {
        "activity": activity,
        "away": found if isinstance(found, str) else None,
        "work": work,
        "trainings": alone,
    }


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
    return str(ref or "").partition("@")[0].partition("?")[0]


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
