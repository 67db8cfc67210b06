"""Run a flow from the command line: Prefect's API found or started, progress on the terminal, one result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from flows import lost_runs
from flows.api import Api, prefect_api, standing_api
from flows.commands.output import nothing_on_stdout
from flows.home import home
from infra.errors import Cancelled
from infra.progress import TerminalProgress, subscribe


def run_flow(load: Callable[[], Any], **parameters: object) -> dict[str, Any]:
    """The result of a flow run in this process.

    Args:
        load: imports the flow and returns it; called once Prefect's settings stand.
        parameters: of the flow.

    Raises:
        ShardmillError: what the job failed of.
        Cancelled: it was stopped, here or from Prefect.
    """
    with nothing_on_stdout(), TerminalProgress() as show:
        unsubscribe = subscribe(show)
        try:
            if standing_api() is None and not (home() / "prefect" / "prefect.db").exists():
                show.say(
                    "First use of Prefect on this machine: making the database of its history, about 10 s"
                )
            with prefect_api() as api:
                lost_runs.mark_lost_commands()
                return _call(load(), api, show, parameters)
        finally:
            unsubscribe()


def _call(flow: Any, api: Api, show: TerminalProgress, parameters: dict[str, object]) -> dict[str, Any]:
    from prefect.exceptions import CancelledRun, TerminationSignal

    def begins(_flow: object, run: Any, _state: object) -> None:
        ends.enter_context(lost_runs.known_run(run.id))
        page = api.run_page(run.id)
        if page:
            show.say(f"Run page: {page}")

    with ExitStack() as ends:
        try:
            result: dict[str, Any] = flow.with_options(on_running=[begins])(**parameters)
        except (CancelledRun, TerminationSignal) as stop:
            raise Cancelled(
                "stopped on request", "run the same command again: it goes on where it was"
            ) from stop
    return result
