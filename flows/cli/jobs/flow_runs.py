"""Run a flow from the command line: find or start Prefect's API, show progress, return the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from flows.cli.output import nothing_on_stdout
from flows.flow_runs import lost_runs
from flows.home import home
from flows.server.api import Api, ApiLost, prefect_api, standing_api
from infra.dataset.views.references import reference_of
from infra.errors import GO_ON, Cancelled, ShardmillError, from_event
from infra.progress import Event, TerminalProgress, subscribe


def run_flow(load: Callable[[], Any], jobs: tuple[str, ...], **parameters: object) -> dict[str, Any]:
    """Run a flow in this process.

    Args:
        load: imports the flow and returns it; called once Prefect's settings are in place.
        jobs: names of the jobs that the flow runs, in order.
        parameters: of the flow.

    Returns:
        The result of the flow's only job, or {job: result}.

    Raises:
        ShardmillError: the job failed. ApiLost: Prefect's API went away before all jobs were done.
        Cancelled: the run was stopped, here or from Prefect.
    """
    outcomes = _Outcomes(jobs)
    with nothing_on_stdout(), TerminalProgress() as show:
        unsubscribers = [subscribe(show), subscribe(outcomes.record)]
        try:
            if standing_api() is None and not (home() / "prefect" / "prefect.db").exists():
                show.say(
                    "First use of Prefect on this machine: making the database of its history, about 10 s"
                )
            with prefect_api() as api:
                lost_runs.mark_lost_commands()
                return _call(load(), api, show, parameters)
        except ApiLost as lost:
            result = outcomes.result_despite_lost_api(lost)
            show.say(f"{lost.message}; the run's history in Prefect stays incomplete", level="warning")
            return result
        except Cancelled as stop:
            raise outcomes.with_finished_jobs(stop) from stop
        finally:
            for unsubscribe in unsubscribers:
                unsubscribe()


class _Outcomes:
    """The results and the error that the jobs of a flow reported, kept apart from Prefect."""

    def __init__(self, jobs: tuple[str, ...]) -> None:
        self._jobs = jobs
        self._results: list[dict[str, Any]] = []
        self._error: Event | None = None

    def record(self, event: Event) -> None:
        """Keep the result or the error of a job, from its event."""
        if event.get("event") == "result":
            self._results.append(event["result"])
        elif event.get("event") == "error":
            self._error = event

    def result_despite_lost_api(self, lost: ApiLost) -> dict[str, Any]:
        """Return the flow's result although the Prefect API was lost, if all its jobs had finished.

        Raises:
            ShardmillError: a job's own error, or ``lost`` with the jobs already finished.
        """
        if self._error is not None:
            raise from_event(self._error) from lost
        if len(self._results) < len(self._jobs):
            raise self.with_finished_jobs(lost) from lost
        if len(self._jobs) == 1:
            return self._results[0]
        return dict(zip(self._jobs, self._results, strict=True))

    def with_finished_jobs(self, error: ShardmillError) -> ShardmillError:
        """Return the error with a message that also lists the jobs already finished."""
        finished = [
            f"{reference_of(result)} was {'published' if job == 'prepare' else 'trained on'}"
            for job, result in zip(self._jobs, self._results, strict=False)
            if not result.get("unchanged")
        ]
        if not finished:
            return error
        return type(error)(f"{error.message}; before that, {' and '.join(finished)}", error.remedy)


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
        except CancelledRun as stop:
            raise Cancelled(str(stop), GO_ON) from stop
        except TerminationSignal as stop:
            raise Cancelled("stopped on request", GO_ON) from stop
    return result
