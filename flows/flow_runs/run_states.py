"""Set the state of a flow run from the end of its job, and decide whether to run the job again."""

from __future__ import annotations

from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Cancelled as CancelledState

from infra.errors import Cancelled, ChildDied


def cancelled_state(reason: BaseException) -> State[Any]:
    """Return the state Cancelled, with the reason as its message."""
    return CancelledState(message=reason.message if isinstance(reason, Cancelled) else str(reason))


def should_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Return whether to run the job again: only if it died without reporting an error.

    This is how a killed process and one without memory end. An error that the job reported would recur.
    """
    try:
        state.result(raise_on_failure=True)
    except ChildDied:
        return True
    except BaseException:  # noqa: BLE001  only asks for the type of the error; Prefect raises it
        return False
    return False
