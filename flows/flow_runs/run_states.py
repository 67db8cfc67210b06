"""Set the state of a flow run from the end of its job, and decide whether to run the job again."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, get_type_hints

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import FlowRunContext
from prefect.states import Cancelled as CancelledState
from prefect.states import Completed as CompletedState
from prefect.states import Failed
from pydantic import BaseModel

from shardmill.flows.flow_runs.api_requests import tag_as_own
from shardmill.flows.flow_runs.run_records import UNCHANGED
from shardmill.flows.flow_runs.running import PAUSES_SECONDS, may_help
from shardmill.flows.flow_runs.showing.failed import command_of, show_failed, state_message
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.flows.flow_runs.worker_process import working_in
from shardmill.infra.errors import Cancelled, ShardmillError

P = ParamSpec("P")
T = TypeVar("T")

# The state of a run that is a part of another one. Automations that tell of state "Failed" tell of the whole.
PART_FAILED = "PartFailed"


def completed_state(message: str, data: Any, *, is_unchanged: bool = False) -> State[Any]:
    """Return the state of a run that ended well; of another name if it found nothing to do."""
    return CompletedState(name=UNCHANGED if is_unchanged else None, message=message, data=data)


def cancelled_state(reason: BaseException) -> State[Any]:
    """Return the state Cancelled, with the reason as its message."""
    return CancelledState(message=reason.message if isinstance(reason, Cancelled) else str(reason))


@contextlib.contextmanager
def failures_shown(
    job: str, keys: Keys, arguments: Sequence[str], settings: Mapping[str, BaseModel]
) -> Iterator[None]:
    """If the block fails, show the error and the command that continues the work on the flow run's page.

    Args:
        job: name of the run's job.
        keys: keys of the run's artifacts.
        arguments: arguments of the `shardmill` command that does the same; empty: there is none.
        settings: prefix of their keys -> settings of that command.
    """
    try:
        yield
    except Cancelled:
        raise
    except ShardmillError as error:
        command = command_of(arguments, settings) if arguments else ""
        show_failed(RunPage.of_this_run(), keys, job, error, command)
        raise


def shardmill_run(work: Callable[P, State[Any]]) -> Callable[P, State[Any]]:
    """Decorate the function of each flow: tag its run as Shardmill's, and describe an error in its state.

    The decorated function must return the final state of the run, and raise an error if the run fails. The
    state of a failed run names the error and its remedy. A caller of the flow gets the same error.
    """
    signature = inspect.signature(work)

    @functools.wraps(work)
    def run_work(*args: P.args, **kwargs: P.kwargs) -> State[Any]:
        context = FlowRunContext.get()
        run = context.flow_run if context is not None else None
        if context is None or context.flow is None or run is None:
            return work(*args, **kwargs)
        tag_as_own(run)
        code = signature.bind(*args, **kwargs).arguments.get("code")
        is_part = run.parent_task_run_id is not None
        try:
            with contextlib.nullcontext() if is_part and code is None else working_in(code):
                return work(*args, **kwargs)
        except Cancelled:
            raise
        except ShardmillError as error:
            name = PART_FAILED if is_part else "Failed"
            return Failed(name=name, message=state_message(context.flow.name, error), data=error)

    return with_form_of(work, run_work)


def with_form_of(work: Callable[P, T], decorated: Callable[P, T]) -> Callable[P, T]:
    """Return ``decorated`` with the signature of ``work``, so that Prefect's form asks for its parameters."""
    # Prefect looks for the names of types in the module of the decorated function.
    decorated.__signature__ = inspect.signature(work, eval_str=True)  # type: ignore[attr-defined]
    decorated.__annotations__ = get_type_hints(work, include_extras=True)
    return decorated


def job_task(name: str) -> Callable[[Callable[P, T]], Task[P, T]]:
    """Make a task of a function that runs a job; the task is repeated after errors that may be temporary."""
    return task(
        name=name,
        cache_policy=NO_CACHE,
        retries=len(PAUSES_SECONDS),
        retry_delay_seconds=list(PAUSES_SECONDS),
        retry_jitter_factor=0.5,
        retry_condition_fn=_should_retry,
    )


def _should_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Return whether to run the job again (shardmill.flows.flow_runs.running)."""
    try:
        state.result(raise_on_failure=True)
    except BaseException as error:  # noqa: BLE001  only asks for the error; Prefect raises it
        return may_help(error)
    return False
