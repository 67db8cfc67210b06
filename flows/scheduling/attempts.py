"""Run a flow from a schedule: at most one run works and one waits, and retries back off."""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import httpx
from prefect import get_run_logger
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException
from prefect.states import Completed, Failed

from shardmill.flows.flow_runs.api_requests import prefect_client
from shardmill.flows.flow_runs.run_states import with_form_of
from shardmill.flows.flow_runs.worker_process import begin_workers_run
from shardmill.flows.scheduling import failures
from shardmill.flows.scheduling.coalescing import is_automatic, kind_of, skipping_superfluous
from shardmill.flows.scheduling.source_state import files_of, mark_of
from shardmill.infra.errors import LockedError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

P = ParamSpec("P")
T = TypeVar("T")

# A repeated failure has this state, so that automations on the state "Failed" report each error only once.
STILL_FAILING = "StillFailing"


def attempted(work: Callable[P, State[Any]]) -> Callable[P, State[Any]]:
    """Decorate the function of a flow: coalesce its runs, and back off while its source fails.

    The decorated function must return the final state of the run, and raise an error if the run fails. If it
    has a parameter ``source``, a change of that source ends the back-off.
    """
    signature = inspect.signature(work, eval_str=True)

    @functools.wraps(work)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> State[Any]:
        context = FlowRunContext.get()
        run = context.flow_run if context is not None else None
        if context is None or run is None or context.flow is None:
            return work(*args, **kwargs)
        if run.parent_task_run_id is not None:
            return work(*args, **kwargs)  # the parent run does this
        begin_workers_run()
        source = signature.bind(*args, **kwargs).arguments.get("source")
        with skipping_superfluous(context.flow, run):
            tries = _Tries(run, kind_of(context.flow, run.parameters), source)
            if is_automatic(run):
                return tries.automatic(lambda: work(*args, **kwargs))
            state = work(*args, **kwargs)
            if state.is_completed():
                tries.succeeded()
            return state

    return with_form_of(work, attempt)


class _Tries:
    """The tries of one kind of run."""

    def __init__(self, run: FlowRun, kind: str, source: str | None) -> None:
        self._run = run
        self._kind = kind
        self._source = source

    def automatic(self, work: Callable[[], State[Any]]) -> State[Any]:
        """Run the work, or postpone it if it failed lately and its source has not changed since."""
        before = _ask(lambda client: failures.read_failures(client, self._kind))
        if before is not None:
            reason = failures.reason_to_postpone(before, time.time(), self._mark())
            if reason is not None:
                return Completed(name=failures.POSTPONED, message=reason)
        try:
            state = work()
        except LockedError as busy:
            return Completed(name=failures.POSTPONED, message=busy.message)
        except Exception as error:
            repeated = self._failed(before, getattr(error, "message", None) or str(error), error)
            if repeated is None:
                raise
            return repeated
        if state.is_completed():
            self.succeeded()
        return state

    def succeeded(self) -> None:
        """Forget earlier failures after a success, and announce that the source has recovered."""
        if _ask(lambda client: failures.forget_failures(client, self._kind)):
            failures.announce("recovered", self._kind, self._run.name)

    def _failed(self, before: failures.Failures | None, message: str, error: Exception) -> State[Any] | None:
        """Store the failure. Return the state of the run if the error is repeated; None for a new error."""
        after = failures.with_failure(before, message, time.time(), self._mark())
        _ask(lambda client: failures.write_failures(client, self._kind, after))
        if after.count > 1:
            get_run_logger().info("failed %d times with the same error: %s", after.count, message)
            return Failed(name=STILL_FAILING, message=message, data=error)
        failures.announce("failing", self._kind, self._run.name, error=message)
        return None

    def _mark(self) -> str:
        return "" if self._source is None else mark_of(files_of(self._source))


def _ask(question: Callable[[SyncPrefectClient], T]) -> T | None:
    """Return the answer of the server; None if it does not answer. The work goes on either way."""
    # Another run of the same kind may create or delete the variable at the same time.
    with contextlib.suppress(httpx.HTTPError, PrefectException), prefect_client() as client:
        return question(client)
    return None
