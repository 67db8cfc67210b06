"""shardmill status: running, finished and scheduled runs, and whether a worker is alive."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from flows.cli import options
from flows.cli.server.schedule_rows import in_local_time, print_schedules, schedule_entries

if TYPE_CHECKING:
    from flows.page.reading.prefect import Activity, FlowRun
    from flows.scheduling.inboxes import Inbox
    from flows.server.api import Api
    from flows.server.schedules import Schedule

T = TypeVar("T")

_MOST_SECONDS = 10.0  # for each of two questions to the server
_ENDED, _COMING = 5, 5


def status(json_output: options.Json = False) -> None:
    """Print running, finished and scheduled runs, with progress, and whether a worker is alive.

    Answers within 20 seconds, however slow the server is.

    [bold]Examples[/bold]

      shardmill status

      shardmill status --json
    """
    from flows.cli import output
    from flows.server.api import standing_api

    api = standing_api()
    if api is None:
        _say_that_nothing_answers(json_output)
        return
    os.environ |= {"PREFECT_API_REQUEST_TIMEOUT": f"{_MOST_SECONDS:g}", "PREFECT_CLIENT_MAX_RETRIES": "0"}
    activity, problem = _within(lambda: _activity(api), "what runs")
    found, other_problem = _within(lambda: _schedules(), "what is scheduled")
    problems = [text for text in (problem, other_problem) if text]
    if json_output:
        output.print_json(_as_json(api, activity, found, problems))
    else:
        _print(api, activity, found, problems)


def _say_that_nothing_answers(json_output: bool) -> None:
    from flows import home
    from flows.cli import output

    process = home.up_process()
    if json_output:
        output.print_json({"running": False, **({"pid": process} if process else {})})
    elif process:
        output.say(
            f"shardmill up (process {process}) is there, but its Prefect server does not answer",
            f"It may be starting; its logs are in {home.logs_folder()}",
        )
    else:
        output.say("shardmill up is not running", "Start it: shardmill up --detach")


def _within(question: Callable[[], T], what: str) -> tuple[T | None, str | None]:
    """The answer, or the error if none comes within some seconds."""
    found: list[T] = []
    failed: list[str] = []

    def ask() -> None:
        try:
            found.append(question())
        except Exception as error:  # noqa: BLE001  becomes a line of the status
            failed.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_MOST_SECONDS)
    if found:
        return found[0], None
    why = failed[0] if failed else f"the server did not answer within {_MOST_SECONDS:.0f} s"
    return None, f"{what} is not known: {why}"


def _activity(api: Api) -> Activity:
    from flows.page.reading.prefect import PrefectApi

    async def ask() -> Activity:
        prefect = PrefectApi(api.url, api.auth)
        try:
            return await prefect.activity()
        finally:
            await prefect.close()

    return asyncio.run(ask())


def _schedules() -> list[Schedule | Inbox]:
    from flows.server.api import prefect_api

    with prefect_api():
        from flows.server.schedules import all_schedules

        return all_schedules()


def _as_json(
    api: Api, activity: Activity | None, found: Sequence[Schedule | Inbox] | None, problems: list[str]
) -> dict[str, Any]:
    known: dict[str, Any] = {
        "running": True,
        "page_url": _page_url(api),
        "ui_url": api.ui_url,
        "api_url": api.url,
    }
    if activity is not None:
        known |= {
            "runs": [_run(run) | {"percent": run.percent, "doing": run.doing} for run in activity.running],
            "ended": [_run(run) for run in activity.ended],
            "next": [_run(run) for run in activity.coming],
            "workers": [
                {"name": worker.name, "alive": worker.is_alive, "heard": worker.heard}
                for worker in activity.workers
            ],
        }
    if found is not None:
        known["schedules"] = schedule_entries(found)
    return known | {"problems": problems}


def _page_url(api: Api) -> str | None:
    """URL of the platform's own page, if this server belongs to a `shardmill up` of this home."""
    from flows import home

    up = home.running_up()
    return up.page_url if up is not None and up.api_url == api.url else None


def _run(run: FlowRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "flow": run.flow,
        "state": run.state,
        "message": run.message,
        "begins": run.begins,
        "dataset": run.parameters.get("dataset"),
    }


def _print(
    api: Api, activity: Activity | None, found: Sequence[Schedule | Inbox] | None, problems: list[str]
) -> None:
    from flows.cli import output

    url = _page_url(api)
    page = [f"Page:       {url}"] if url else []
    output.say(*page, f"Prefect UI: {api.ui_url}", f"API:        {api.url}")
    if activity is not None:
        alive = [worker.name for worker in activity.workers if worker.is_alive]
        output.say(
            f"Worker:     {', '.join(alive) if alive else 'none is alive: runs of deployments wait'}", ""
        )
        _print_runs(activity)
    if found is not None:
        print_schedules(found)
    for problem in problems:
        output.note(f"note: {problem}")


def _print_runs(activity: Activity) -> None:
    from flows.cli import output

    if activity.running:
        rows = [[run.name, run.state, in_local_time(run.begins), _progress(run)] for run in activity.running]
        output.print_table("Running", ["run", "state", "since", "progress"], rows)
    else:
        output.say("Nothing runs.", "")
    if activity.ended:
        rows = [
            [run.name, run.state, in_local_time(run.begins), run.message.partition("\n")[0]]
            for run in activity.ended[:_ENDED]
        ]
        output.print_table("Ended last", ["run", "state", "began", "message"], rows)
    if activity.coming:
        rows = [
            [run.flow, run.parameters.get("dataset", ""), in_local_time(run.begins), run.state]
            for run in activity.coming[:_COMING]
        ]
        output.print_table("Next", ["flow", "dataset", "when", "state"], rows)


def _progress(run: FlowRun) -> str:
    if run.percent is None:
        return ""
    percent = f"{run.percent:.0f} %"
    return run.doing if run.doing.startswith(percent) else f"{percent}  {run.doing}"
