"""SHARDMILL_HOME: where this machine keeps Prefect's history, the logs of `shardmill up`, and its state.

::

    ~/.shardmill/                 or $SHARDMILL_HOME
      prefect/                    PREFECT_HOME of everything Shardmill starts: history outlives each run,
                                  and the user's own Prefect profile is left alone
      logs/                       server.log, worker.log, up.log
      running/                    a locked file for each command that runs a flow
      turns-HOST.lock             locked by the job that works on this machine (infra.processes.turns)
      records/                    a file for each run without a server, until `shardmill up` takes it over
      up.json                     the `shardmill up` that runs, if one does
      up.lock                     holds its process id; the kernel releases the lock when it ends
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from infra.errors import EnvironmentFault, LockedError
from infra.processes.turns import TURNS_VARIABLE

# Names of this machine for itself.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NOT_BY_PROXY = ("127.0.0.1", "localhost")


def home() -> Path:
    """The folder SHARDMILL_HOME; makes it on first use.

    Raises:
        EnvironmentFault: It cannot be made or written to.
    """
    place = os.environ.get("SHARDMILL_HOME") or "~/.shardmill"
    try:
        return _made(Path(place).expanduser().absolute())
    except RuntimeError as error:  # this user has no home
        raise _unusable(place, str(error)) from error


def logs_folder() -> Path:
    """The folder of the logs of server, worker and `shardmill up`."""
    return _made(home() / "logs")


def running_folder() -> Path:
    """The folder that holds a file for each command that runs a flow (flows.flow_runs.lost_runs)."""
    return _made(home() / "running")


def take_turns() -> None:
    """Have the jobs of this process wait until no other job of this machine works."""
    os.environ.setdefault(TURNS_VARIABLE, str(home() / f"turns-{socket.gethostname()}.lock"))


def records_folder() -> Path:
    """The folder that holds a file for each run without a server (flows.flow_runs.run_records)."""
    return _made(home() / "records")


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(folder, "it cannot be written to")
    return folder


def _unusable(place: Path | str, why: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{place} cannot keep Prefect's history and logs: {why}",
        "set SHARDMILL_HOME to a folder that you can write to",
    )


def prefect_environment() -> dict[str, str]:
    """Environment variables that keep Prefect on this machine, with its history in SHARDMILL_HOME."""
    return {
        "PREFECT_HOME": str(_made(home() / "prefect")),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        **quiet_environment(),
    }


def quiet_environment() -> dict[str, str]:
    """Environment variables for any Prefect API: no analytics, and no proxy for loopback."""
    # The V2 interface calls an analytics host from the browser.
    return {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        **{name: _with_loopback(os.environ.get(name, "")) for name in ("NO_PROXY", "no_proxy")},
    }


def _with_loopback(hosts: str) -> str:
    listed = [host for host in hosts.split(",") if host]
    return ",".join([*listed, *(host for host in _NOT_BY_PROXY if host not in listed)])


@dataclass(frozen=True, slots=True)
class RunningUp:
    """The `shardmill up` of this machine: its process, and the address of its Prefect server.

    Attributes:
        auth: the server's password as ``user:password``, or None if it has none.
        page_port: port of the platform's own page.
        has_tensorboard: TensorBoard runs behind that page.
    """

    pid: int
    host: str
    port: int
    root: str
    runs: str
    auth: str | None = None
    page_port: int = 0
    has_tensorboard: bool = False

    @property
    def page_url(self) -> str:
        """Address of the platform's own page."""
        return server_url(self.host, self.page_port)

    @property
    def ui_url(self) -> str:
        """Address of the web interface."""
        return server_url(self.host, self.port)

    @property
    def api_url(self) -> str:
        """Address of the API."""
        return f"{self.ui_url}/api"


def server_url(host: str, port: int) -> str:
    """The address at which this machine reaches a server that listens on ``host``."""
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"


def write_running_up(up: RunningUp) -> None:
    """Record that ``up`` runs and is healthy. Only this user can read the file: it holds the password."""
    path = _state_path()
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    with open(temporary, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
        file.write(json.dumps(asdict(up)))
    temporary.replace(path)


def clear_running_up() -> None:
    """Record that no `shardmill up` runs."""
    _state_path().unlink(missing_ok=True)


def running_up() -> RunningUp | None:
    """The `shardmill up` that runs, or None. Ignores the state file of one that was killed."""
    try:
        up = RunningUp(**json.loads(_state_path().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return up if up_process() is not None else None


@contextmanager
def up_lock(remedy: str = "use it, or stop it with: shardmill down") -> Iterator[None]:
    """Hold the lock that only one `shardmill up` of this home can hold.

    Args:
        remedy: what to do if another one runs.

    Raises:
        LockedError: Another one runs.
        EnvironmentFault: SHARDMILL_HOME cannot be used.
    """
    try:
        opened = _lock_path().open("a")
    except OSError as error:
        raise _unusable(_lock_path(), error.strerror or str(error)) from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            up = running_up()
            at = f" (process {up.pid}) at {up.ui_url}" if up else "; it is starting or stopping"
            raise LockedError(f"shardmill up is already running{at}", remedy) from error
        clear_running_up()  # of one that was killed
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def up_process() -> int | None:
    """Process id of the `shardmill up` that starts, runs or stops; None if there is none."""
    try:
        with _lock_path().open("r") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0) or None
    except (OSError, ValueError):
        pass
    return None


def _state_path() -> Path:
    return home() / "up.json"


def _lock_path() -> Path:
    return home() / "up.lock"
