"""SHARDMILL_HOME: where this machine keeps Prefect's history, the logs of `shardmill up`, and its state.

::

    ~/.shardmill/                 or $SHARDMILL_HOME
      prefect/                    PREFECT_HOME of everything Shardmill starts: history outlives each run,
                                  and the user's own Prefect profile is left alone
      logs/                       server.log, worker.log, up.log
      running/                    a locked file for each command that runs a flow
      turns-HOST.lock             locked by the job that works on this machine (infra/processes/turns.py)
      records/                    a file for each run without a server, until `shardmill up` takes it over
      problems/                   a file for each open problem of the platform (flows/problems.py)
      alarm/                      events that were told, and messages that wait (flows/server/alarm/)
      up.json, up.lock            of the `shardmill up` that runs (flows/server/running_up.py)

Only its user can read it, folders 0700 and files 0600 (``make_private``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.turns import TURNS_VARIABLE
from shardmill.infra.progress import log

# Names of this machine for itself.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
# What is ours in the home, beside the files of turns.
_OWN = frozenset({"prefect", "logs", "running", "records", "problems", "alarm", "up.json", "up.lock"})
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
        raise unusable(place, str(error)) from error


def logs_folder() -> Path:
    """The folder of the logs of server, worker and `shardmill up`."""
    return _made(home() / "logs")


def running_folder() -> Path:
    """The folder of a file for each command that runs a flow (shardmill.flows.flow_runs.lost_runs)."""
    return _made(home() / "running")


def make_private() -> None:
    """Let nobody but this user read the home: Prefect's history has passwords, and the key that hides them.

    A home of an earlier release is mended. What others keep in this folder is left alone.
    """
    folder = home()
    try:
        if folder.stat().st_mode & stat.S_ISVTX == 0:  # not /tmp
            folder.chmod(PRIVATE_FOLDER)
    except OSError as error:
        log(f"others may read {folder}: {error.strerror}", level="warning")
    for path in folder.iterdir():
        if path.name in _OWN or path.name.startswith("turns-"):
            hide(path)


def hide(path: Path) -> None:
    """Let nobody but this user read a file, or a folder and all files in it. Warn where that fails."""
    try:
        _hide(path)
    except OSError as error:  # another user's folder, or a disk without permissions
        log(f"others may read {path}: {error.strerror}", level="warning")


def _hide(path: Path) -> None:
    if path.is_symlink():
        return
    if not path.is_dir():
        with contextlib.suppress(FileNotFoundError):  # ended this moment, such as SQLite's journal
            path.chmod(PRIVATE_FILE | path.stat().st_mode & stat.S_IXUSR)
        return
    path.chmod(PRIVATE_FOLDER)
    for each in path.iterdir():
        _hide(each)


def open_private(path: str, flags: int) -> int:
    """Open a file that only this user can read, as the ``opener`` of ``open``."""
    return os.open(path, flags, PRIVATE_FILE)


def take_turns() -> None:
    """Have the jobs of this process wait until no other job of this machine works."""
    os.environ.setdefault(TURNS_VARIABLE, str(home() / f"turns-{socket.gethostname()}.lock"))


def records_folder() -> Path:
    """The folder that holds a file for each run without a server (shardmill.flows.flow_runs.run_records)."""
    return _made(home() / "records")


def problems_folder() -> Path:
    """The folder that holds a file for each open problem of the platform (shardmill.flows.problems)."""
    return _made(home() / "problems")


def alarm_folder() -> Path:
    """Return the folder of the alarm: the events that it has told, and the messages that wait to be sent."""
    return _made(home() / "alarm")


def _made(folder: Path) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        raise unusable(folder, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise unusable(folder, "it cannot be written to")
    return folder


def unusable(place: Path | str, why: str) -> EnvironmentFault:
    """The error of a home, or a file of it, that cannot be used."""
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


def server_url(host: str, port: int) -> str:
    """The address at which this machine reaches a server that listens on ``host``."""
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
