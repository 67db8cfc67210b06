"""How a job's end becomes a run's state: cancelled runs are Cancelled, and a job that died is tried again."""

from __future__ import annotations

from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Cancelled as CancelledState

from infra.errors import ChildDied


def cancelled_state() -> State[Any]:
    """The state of a run that was stopped on request; what it had finished is kept."""
    return CancelledState(message="Stopped on request; the next run goes on from here")


def may_try_again(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a job died without a reason of its own (killed, out of memory): it goes on where it was.

    Errors that the job itself reported come back however often it runs.
    """
    try:
        state.result(raise_on_failure=True)
    except ChildDied:
        return True
    except BaseException:  # noqa: BLE001  only asks which error it was; Prefect raises it
        return False
    return False
