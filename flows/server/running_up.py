"""The `shardmill up` of this home: its lock, and the file of its addresses, which exists while it is healthy.

::

    up.lock    locked while it starts, runs and stops; holds its process id
    up.json    its addresses

The kernel releases the lock when the process ends. If nobody holds the lock, up.json
is that of a killed process and is ignored.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shardmill.flows.home import home, open_private, server_url, unusable
from shardmill.infra import progress as events
from shardmill.infra.errors import CorruptDataError, LockedError
from shardmill.infra.json_files import read_json, write_json

_READERS_SECONDS = 1.0
_POLL_SECONDS = 0.05


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


def write_running_up(up: RunningUp) -> None:
    """Record that ``up`` runs and is healthy. Only this user can read the file: it holds the password."""
    write_json(_state_path(), up, opener=open_private)


def clear_running_up() -> None:
    """Record that no `shardmill up` runs."""
    _state_path().unlink(missing_ok=True)


def running_up() -> RunningUp | None:
    """Return the running `shardmill up`; None: none runs, it is starting, or its file cannot be read.

    A file that cannot be read is named in a warning.
    """
    path = _state_path()
    if up_process() is None or not path.exists():
        return None
    try:
        return read_json(path, RunningUp, "start it again: shardmill down; shardmill up --detach")
    except CorruptDataError as error:
        events.log(str(error), level="warning")
        return None


@contextmanager
def up_lock(
    remedy: str = "use it, or stop it with: shardmill down", *, process_id: int | None = None
) -> Iterator[None]:
    """Hold the lock that only one `shardmill up` of this home can hold.

    Args:
        remedy: what to do if another one runs.
        process_id: the process that `shardmill down` stops; None: the caller is not `shardmill up`, but must
            keep it from starting.

    Raises:
        LockedError: Another one runs.
        EnvironmentFault: SHARDMILL_HOME cannot be used.
    """
    try:
        opened = _lock_path().open("a")
    except OSError as error:
        raise unusable(_lock_path(), error.strerror or str(error)) from error
    with opened as lock:
        try:
            _lock(lock)
        except BlockingIOError as error:
            up = running_up()
            at = f" (process {up.pid}) at {up.ui_url}" if up else "; it is starting or stopping"
            raise LockedError(f"shardmill up is already running{at}", remedy) from error
        clear_running_up()  # left behind by one that was killed
        lock.truncate(0)
        if process_id is not None:
            lock.write(str(process_id))
            lock.flush()
        yield


def _lock(file: IO[str]) -> None:
    """Lock the file; wait a moment for readers, such as ``up_process`` of another command.

    Raises:
        BlockingIOError: Another process holds it.
    """
    end = time.monotonic() + _READERS_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise
        time.sleep(_POLL_SECONDS)


def up_process() -> int | None:
    """Return the process id of the `shardmill up` that starts, runs or stops; None if there is none."""
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
