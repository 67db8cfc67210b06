"""Mark runs whose process was killed (kill -9, out of memory, power) as Crashed.

Each run has a file under SHARDMILL_HOME/running, named after the run's id and locked by its process. The
kernel releases the lock when the process ends, however it ends. The next command, or `shardmill up`, finds
the unlocked file and marks the run as Crashed, together with the runs inside it. So no run is marked whose
process lives, whatever became of the server meanwhile.

Several containers, or machines, may share the folder. A file names its machine, and others leave it alone:
they may not see its lock. The containers of one machine share a kernel, and so the locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from shardmill.flows import home
from shardmill.flows.flow_runs.api_requests import IN_PROGRESS, OWN, prefect_client, run_filter
from shardmill.infra.storage.locking import kernel

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

# The files of the runs of this process, open and so locked.
_held: dict[UUID, IO[str]] = {}

# The state of a run that is a part of another one: automations that tell of "Crashed" tell of the whole.
_PART_CRASHED = "PartCrashed"
_KERNEL, _HOST = "kernel ", "host "
_MESSAGE = "The process of this run was killed; the next run continues its work"


@contextlib.contextmanager
def known_run(run_id: UUID) -> Iterator[None]:
    """Let other processes see that the process of this run lives, until the block ends.

    A run that ends while the server is away counts as lost, because the server does not know its end.
    """
    import httpx

    path = home.running_folder() / str(run_id)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits while another process looks at it
        file.write("\n".join(_server_names() | _machine_names()))
        file.flush()
        try:
            yield
        except httpx.HTTPError:
            raise
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)


def hold_until_exit(run_id: UUID) -> None:
    """Let other processes see that the process of this run lives, until the process ends."""
    if run_id in _held:
        return
    file = (home.running_folder() / str(run_id)).open("w")
    fcntl.flock(file, fcntl.LOCK_EX)  # waits while another process looks at it
    file.write("\n".join(_server_names() | _machine_names()))
    file.flush()
    _held[run_id] = file


def lost_commands() -> list[Path]:
    """Return the files of this server's runs whose process has ended."""
    return [path for path in sorted(home.running_folder().iterdir()) if _names_a_run(path) and _is_lost(path)]


def mark_lost_commands() -> int:
    """Mark the runs of ``lost_commands`` that have not ended as Crashed; return their number."""
    lost = lost_commands()
    if not lost:
        return 0

    marked = 0
    with prefect_client() as client:
        for path in lost:
            marked += _crash(client, UUID(path.name))
            path.unlink(missing_ok=True)
    return marked


def mark_lost_subflows() -> int:
    """Mark runs of Shardmill whose parent run has ended as Crashed; return their number."""
    from prefect.exceptions import ObjectNotFound

    marked = 0
    with prefect_client() as client:
        unfinished = client.read_flow_runs(
            flow_run_filter=run_filter(**OWN, **IN_PROGRESS, parent_task_run_id={"is_null_": False})
        )
        for run in unfinished:
            assert run.parent_task_run_id is not None
            try:
                parent = client.read_task_run(run.parent_task_run_id).flow_run_id
            except ObjectNotFound:  # somebody has deleted the parent run: the watch of the job ends this one
                continue
            # The run may have ended since the server listed the unfinished runs.
            if parent is not None and _is_final(client, parent) and not _is_final(client, run.id):
                set_crashed(client, run.id)
                marked += 1
    return marked


def _crash(client: SyncPrefectClient, run_id: UUID) -> bool:
    """Mark a run and the runs inside it that have not ended; return whether it had not."""
    inside = client.read_flow_runs(
        flow_run_filter=run_filter(**IN_PROGRESS, parent_flow_run_id={"any_": [run_id]})
    )
    for run in inside:
        _crash(client, run.id)
    if _is_final(client, run_id):
        return False
    set_crashed(client, run_id)
    return True


def _is_final(client: SyncPrefectClient, run_id: UUID) -> bool:
    """Tell whether a run has ended or was deleted."""
    from prefect.exceptions import ObjectNotFound

    try:
        state = client.read_flow_run(run_id).state
    except ObjectNotFound:
        return True
    return state is not None and state.is_final()


def is_held(run_id: UUID) -> bool:
    """Tell whether a process of this machine holds the lock of a run."""
    try:
        with (home.running_folder() / str(run_id)).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def set_crashed(client: SyncPrefectClient, run_id: UUID, message: str = _MESSAGE) -> None:
    """Mark a run as Crashed, or as Cancelled if that was asked for before its process ended."""
    from prefect.states import Cancelled, Crashed

    run = client.read_flow_run(run_id)
    is_asked = run.state is not None and (run.state.is_cancelling() or run.state.is_paused())
    name = "Crashed" if run.parent_task_run_id is None else _PART_CRASHED
    state: Any = Cancelled(message="Stopped on request") if is_asked else Crashed(name=name, message=message)
    client.set_flow_run_state(run_id, state, force=True)


def _names_a_run(path: Path) -> bool:
    """Tell whether a file is of a run, and not one that a file system or a person left there."""
    with contextlib.suppress(ValueError):
        return bool(UUID(path.name))
    return False


def _is_lost(path: Path) -> bool:
    try:
        with path.open(errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            lines = file.read().splitlines()
    except OSError:  # held, or gone this moment
        return False
    return not _server_names().isdisjoint(lines) and _is_of_this_machine(lines)


def _is_of_this_machine(lines: list[str]) -> bool:
    """Tell whether the file of a run is of this machine, also of before its last restart."""
    named = {line for line in lines if line.startswith((_KERNEL, _HOST))}
    return not named or not named.isdisjoint(_machine_names())


def _machine_names() -> set[str]:
    return {f"{_KERNEL}{kernel()}", f"{_HOST}{socket.gethostname()}"}


def _server_names() -> set[str]:
    """Names of the server that holds a run's history: its address, and "home" for a server of this home."""
    is_own = os.environ.get("PREFECT_HOME") == str(home.home() / "prefect")
    return {os.environ["PREFECT_API_URL"], *(["home"] if is_own else [])}
