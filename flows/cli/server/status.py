"""shardmill status: running, finished and scheduled runs, and whether a worker is alive."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shardmill.flows import home
from shardmill.flows.cli import options, output
from shardmill.flows.cli.server.schedule_rows import in_local_time, print_schedules, schedule_entries
from shardmill.flows.problems import Problem, open_problems
from shardmill.flows.server.api import Api, prefect_api, standing_api
from shardmill.flows.server.running_up import running_up, up_process
from shardmill.infra.whole_job import WAITING

if TYPE_CHECKING:
    from shardmill.flows.page.reading.prefect import Activity, FlowRun
    from shardmill.flows.scheduling.inboxes import Inbox
    from shardmill.flows.server.schedules import Schedule

T = TypeVar("T")

_ANSWER_SECONDS = 2.0  # for the first answer of the server
_MOST_SECONDS = 10.0  # for all questions to the server
_ENDED, _COMING = 5, 5


def status(json_output: options.Json = False) -> None:
    """Print what runs, what ended, what is scheduled, and the workers.

    Answers within 10 seconds after its own start, however slow the server is.

    Examples:
      shardmill status
      shardmill status --json
    """
    api = standing_api(_ANSWER_SECONDS)
    if api is None:
        _say_that_nothing_answers(json_output)
        return
    os.environ |= {"PREFECT_API_REQUEST_TIMEOUT": f"{_MOST_SECONDS:g}", "PREFECT_CLIENT_MAX_RETRIES": "0"}
    _load(api)
    activities: _Question[Activity] = _Question("what runs", lambda: _activity(api))
    schedules: _Question[list[Schedule | Inbox]] = _Question("what is scheduled", _schedules)
    end = time.monotonic() + _MOST_SECONDS
    (activity, problem), (found, other_problem) = activities.answer(end, api), schedules.answer(end, api)
    problems = [text for text in (problem, other_problem) if text]
    if json_output:
        output.print_json(_as_json(api, activity, found, problems))
    else:
        _print(api, activity, found, problems)
    if activities.is_open or schedules.is_open:
        # Prefect's client would wait for the thread that still asks, or abort with it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _load(api: Api) -> None:
    """Import Prefect's client first, since that may take seconds, which must not count as a slow server."""
    with prefect_api(api):
        import prefect.client.orchestration  # noqa: F401


def _say_that_nothing_answers(json_output: bool) -> None:
    process = up_process()
    if process is None:
        output.answer(
            {"running": False}, json_output, "shardmill up is not running", "Start it: shardmill up --detach"
        )
        return

    found = open_problems()
    up = running_up()
    where = f" at {up.api_url}" if up is not None else ""
    problem = f"shardmill up (process {process}) is there, but its Prefect server{where} does not answer"
    if json_output:
        output.print_json(
            {"running": True, "pid": process, "problems": [problem], "open_problems": _open_entries(found)}
        )
    else:
        output.say(problem, f"It may be starting, or be busy; its logs are in {home.logs_folder()}")
        _print_open(found)


class _Question(Generic[T]):
    """A request to the server in a thread of its own, which ends with this process."""

    def __init__(self, what: str, ask: Callable[[], T]) -> None:
        self._what = what
        self._found: list[T] = []
        self._failed: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], T]) -> None:
        try:
            self._found.append(ask())
        except Exception as error:  # noqa: BLE001  becomes a line of the status
            self._failed.append(str(error) or type(error).__name__)

    @property
    def is_open(self) -> bool:
        """Whether the request is still running."""
        return self._thread.is_alive()

    def answer(self, end: float, api: Api) -> tuple[T | None, str | None]:
        """Return the answer, or why there is none by ``end`` (by the monotonic clock)."""
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._found:
            return self._found[0], None
        late = f"the server at {api.url} did not answer within {_MOST_SECONDS:.0f} s"
        return None, f"{self._what} is not known: {self._failed[0] if self._failed else late}"


def _activity(api: Api) -> Activity:
    import asyncio

    from shardmill.flows.page.reading.prefect import PrefectApi

    async def ask() -> Activity:
        prefect = PrefectApi(api.url, api.auth)
        try:
            return await prefect.activity()
        finally:
            await prefect.close()

    return asyncio.run(ask())


def _schedules() -> list[Schedule | Inbox]:
    from shardmill.flows.server.schedules import all_schedules

    with prefect_api():
        return all_schedules()


def _as_json(
    api: Api, activity: Activity | None, found: Sequence[Schedule | Inbox] | None, problems: list[str]
) -> dict[str, Any]:
    known: dict[str, Any] = {
        "running": True,
        "page_url": _page_url(api),
        "ui_url": api.ui_url,
        "api_url": api.url,
        "open_problems": _open_entries(open_problems()),
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
    up = running_up()
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
    url = _page_url(api)
    page = [f"Page:       {url}"] if url else []
    output.say(*page, f"Prefect UI: {api.ui_url}", f"API:        {api.url}")
    _print_open(open_problems())
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


def _open_entries(found: Sequence[Problem]) -> list[dict[str, Any]]:
    return [asdict(problem) for problem in found]


def _print_open(found: Sequence[Problem]) -> None:
    if found:
        rows = [[in_local_time(one.since), one.text, one.remedy] for one in found]
        output.print_table("Problems", ["since", "problem", "remedy"], rows)


def _print_runs(activity: Activity) -> None:
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
    return run.doing if run.doing.startswith((percent, WAITING)) else f"{percent}  {run.doing}"
