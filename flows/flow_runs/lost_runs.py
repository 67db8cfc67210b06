"""Mark runs as Crashed whose process was killed (kill -9, out of memory, power).

The worker watches the runs that it started. Each run that a command started has a file under
SHARDMILL_HOME/running, named after the run's id and locked by the command. The kernel releases the lock when
the command ends, however it ends. The next command, or `shardmill up`, finds the unlocked file and marks the
run as Crashed, together with the runs inside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows import home

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_MESSAGE = "The process of this run was killed; the next run continues its work"


@contextlib.contextmanager
def known_run(run_id: UUID) -> Iterator[None]:
    """Let other processes see that the process of this run lives, until the block ends.

    A run that ends while the server is away counts as lost, because the server does not know its end.
    """
    import httpx

    path = home.running_folder() / str(run_id)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write("\n".join(_server_names()))
        file.flush()
        try:
            yield
        except httpx.HTTPError:
            raise
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)


def lost_commands() -> list[Path]:
    """The files of lost runs that belong to the server of this environment."""
    return [path for path in sorted(home.running_folder().iterdir()) if _is_lost(path)]


def mark_lost_commands() -> int:
    """Mark the runs of ``lost_commands`` as Crashed; return their number."""
    lost = lost_commands()
    if not lost:
        return 0
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for path in lost:
            _crash(client, UUID(path.name))
            path.unlink(missing_ok=True)
    return len(lost)


def mark_lost_subflows() -> int:
    """Mark runs as Crashed whose parent run has ended; return their number."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentTaskRunId

    marked = 0
    with get_client(sync_client=True) as client:
        unfinished = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                state=_unfinished(), parent_task_run_id=FlowRunFilterParentTaskRunId(is_null_=False)
            )
        )
        for run in unfinished:
            assert run.parent_task_run_id is not None
            parent = client.read_task_run(run.parent_task_run_id).flow_run_id
            if parent is not None and _is_final(client, parent):
                _set_crashed(client, run.id)
                marked += 1
    return marked


def _crash(client: SyncPrefectClient, run_id: UUID) -> None:
    """Mark a run and the runs inside it that have not ended."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId

    inside = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            state=_unfinished(), parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run_id])
        )
    )
    for run in inside:
        _crash(client, run.id)
    if not _is_final(client, run_id):
        _set_crashed(client, run_id)


def _is_final(client: SyncPrefectClient, run_id: UUID) -> bool:
    """Tell whether a run has ended or was deleted."""
    from prefect.exceptions import ObjectNotFound

    try:
        state = client.read_flow_run(run_id).state
    except ObjectNotFound:
        return True
    return state is not None and state.is_final()


def _set_crashed(client: SyncPrefectClient, run_id: UUID) -> None:
    from prefect.states import Crashed

    state: Any = Crashed(message=_MESSAGE)
    client.set_flow_run_state(run_id, state, force=True)


def _unfinished() -> Any:
    from prefect.client.schemas.filters import FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType

    return FlowRunFilterState(
        type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.CANCELLING])
    )


def _is_lost(path: Path) -> bool:
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return not _server_names().isdisjoint(file.read().splitlines())
    except OSError:  # held, or gone this moment
        return False


def _server_names() -> set[str]:
    """Names of the server that holds a run's history: its address, and "home" for a server of this home."""
    is_own = os.environ.get("PREFECT_HOME") == str(home.home() / "prefect")
    return {os.environ["PREFECT_API_URL"], *(["home"] if is_own else [])}
