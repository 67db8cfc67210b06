"""Start a Prefect server or worker as a child process, wait until it is healthy, stop its process tree."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from shardmill.flows.flow_runs import api_requests
from shardmill.flows.home import PRIVATE_FILE, home, open_private, running_folder, server_url
from shardmill.flows.server.database import DATABASE_SETTING, RESTORE, without_password
from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.job_command import python_module
from shardmill.infra.processes.process import LIFELINE_FD
from shardmill.infra.processes.trees import kill_tree

# The names of what `shardmill up` runs, in messages.
UP, SERVER, BOARD, PAGE, WORKER, WATCH = (
    "shardmill up", "Prefect's server", "TensorBoard", "the page", "the worker", "the watch",
)  # fmt: skip

# The first start of a home makes the database of its history: 7 s on an idle machine, minutes on a busy one.
START_SECONDS = 300.0

# What Prefect's server says of a database that a later release has changed.
_NEWER_DATABASE = "Can't locate revision identified by"
_VACUUM = "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"
_POLL_SECONDS = 0.05
_PROBE_SECONDS = 10.0
_BEATS_SECONDS = 60.0
_FLOW_RUN_GRACE_SECONDS = 20.0
_LOG_BYTES = 20 << 20
_LEAST_BYTES = 1 << 20  # free on a disk that is not full


def server_settings(ui_url: str) -> dict[str, str]:
    """Return Prefect's settings for each of our servers: closed to foreign web pages, safe to restart."""
    return {
        "PREFECT_API_URL": f"{ui_url}/api",
        # By default any web page may read the API and start runs, and a run may carry a command.
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": ui_url,
        # CORS does not stop a plain POST without a content type, which the API would take for JSON.
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        # A run holds its deployment's place by a lease. Kept in memory, leases are lost with the server; and
        # those that ran out while it was away would be revoked when it is back. Either ends healthy runs at
        # the next renewal. A place is freed anyway when its run's state is set or its run is deleted.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        "PREFECT_SERVER_SERVICES_REPOSSESSOR_ENABLED": "false",
        # Runs that ended long ago are deleted with their logs; by default only events are. Prefect's setting
        # PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD says when: after 90 days, unless set.
        _VACUUM: os.environ.get(_VACUUM, "events,flow_runs"),
    }


def password_settings(auth: str) -> dict[str, str]:
    """Return Prefect's settings for a server with a password, ``user:password``, and for its clients."""
    return {"PREFECT_SERVER_API_AUTH_STRING": auth, "PREFECT_API_AUTH_STRING": auth}


def beat(name: str) -> None:
    """Note that a service works, by the time of a file that `shardmill up` checks."""
    _beats(name).touch(PRIVATE_FILE)


def last_beat(name: str) -> float | None:
    """The time of the last ``beat`` of a service (seconds since 1970); None if there was none."""
    try:
        return _beats(name).stat().st_mtime
    except FileNotFoundError:
        return None


def is_beating(name: str) -> bool:
    """Tell whether a service of this machine did its work within the last minute."""
    return time.time() - (last_beat(name) or 0.0) < _BEATS_SECONDS


def _beats(name: str) -> Path:
    return running_folder() / f"{name.replace(' ', '-')}.beat"


class Service:
    """The process of a service; a lifeline ends it when this process ends or is killed."""

    _UMASK = 0o077  # files of services are for this user alone

    def __init__(self, arguments: Sequence[str], *, log_path: Path, env: Mapping[str, str]) -> None:
        self.log_path = log_path
        lifeline_read, self._lifeline = os.pipe()
        try:
            with open(log_path, "ab", opener=open_private) as log:
                self.process = subprocess.Popen(
                    python_module("shardmill.flows.server.service_process", *arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lifeline_read,),
                    start_new_session=True,
                    env={**os.environ, **env, LIFELINE_FD: str(lifeline_read)},
                    umask=self._UMASK,
                )
        finally:
            os.close(lifeline_read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process and all its descendants."""
        if self._lifeline >= 0:
            kill_tree(self.process)
            os.close(self._lifeline)
            self._lifeline = -1

    def wait_until_healthy(self) -> None:
        """Wait until the service answers. Does nothing for services that no other one needs."""

    def sign_of_life(self) -> object:
        """Return something that changes while the service does its work; takes a few seconds at most."""
        return time.monotonic()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended on its own."""
        return self.process.poll() is not None

    def check(self, what: str) -> None:
        """Raise EnvironmentFault, with the end of the log, when the service has ended on its own."""
        status = self.process.poll()
        if status is None:
            return
        folder = self.log_path.parent
        if shutil.disk_usage(folder).free < _LEAST_BYTES:
            raise EnvironmentFault(f"{what} ended; the disk of {folder} is full", "make space there")
        raise EnvironmentFault(
            f"{what} ended with status {status}; it last said:\n{self.last_lines()}", f"see {self.log_path}"
        )

    def last_lines(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log_path.read_text("utf-8", "replace").splitlines()[-12:])


class Server(Service):
    """Prefect's API on this machine."""

    def __init__(self, host: str, port: int, *, log_path: Path, env: Mapping[str, str]) -> None:
        self.ui_url = server_url(host, port)
        url = env.get(DATABASE_SETTING)
        self._database = without_password(url) if url else str(home() / "prefect" / "prefect.db")
        self.api_url = f"{self.ui_url}/api"
        arguments = ["server", host, str(port)]
        super().__init__(arguments, log_path=log_path, env={**env, **server_settings(self.ui_url)})

    def sign_of_life(self) -> object:
        """Return the time of a clock if the server answers, else None."""
        return time.monotonic() if api_requests.answers(self.api_url, _PROBE_SECONDS) else None

    def wait_until_healthy(self) -> None:
        """Wait until the server answers.

        Raises:
            EnvironmentFault: The server ended, or did not answer in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while not api_requests.answers(self.api_url):
            if self.has_ended and _NEWER_DATABASE in self.last_lines():
                raise EnvironmentFault(
                    f"Prefect's database {self._database} is of a newer release of Prefect than this one",
                    f"install that release; or {RESTORE}",
                )
            self.check("Prefect's server")
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"Prefect's server did not answer within {START_SECONDS:.0f} s", f"see {self.log_path}"
                )
            time.sleep(_POLL_SECONDS)


class Page(Service):
    """The platform's own page on this machine."""

    def __init__(self, host: str, port: int, *, log_path: Path, env: Mapping[str, str]) -> None:
        super().__init__(["page", host, str(port)], log_path=log_path, env=env)
        self._url = f"{server_url(host, port)}/health"

    def sign_of_life(self) -> object:
        """Return the time of a clock if the page answers, else None."""
        return _answer_of(self._url)


class Watch(Service):
    """The process that sends messages and watches inboxes."""

    def __init__(self, *, log_path: Path, env: Mapping[str, str]) -> None:
        super().__init__(["watch"], log_path=log_path, env=env)

    def sign_of_life(self) -> object:
        """Return the time of its last beat."""
        return last_beat(WATCH)


class TensorBoard(Service):
    """TensorBoard on loopback; people reach it through the page."""

    def __init__(self, port: int, *, log_path: Path, env: Mapping[str, str]) -> None:
        super().__init__(["tensorboard", str(port)], log_path=log_path, env=env)
        self._url = f"{server_url('127.0.0.1', port)}/tensorboard/"

    def sign_of_life(self) -> object:
        """Return the time of a clock if TensorBoard answers, else None."""
        return _answer_of(self._url)


class Worker(Service):
    """The process worker of `shardmill up`."""

    _UMASK = -1  # unchanged: datasets and models are for whom the user lets read them

    def __init__(self, pool: str, *, log_path: Path, env: Mapping[str, str]) -> None:
        super().__init__(["worker", pool], log_path=log_path, env=env)

    def sign_of_life(self) -> object:
        """Return the time of its last beat."""
        return last_beat(WORKER)

    def stop(self) -> None:
        """End the flow runs first, so that they can report that they were stopped, then the worker."""
        with contextlib.suppress(psutil.NoSuchProcess):
            flow_runs = psutil.Process(self.process.pid).children()
            for flow_run in flow_runs:
                with contextlib.suppress(psutil.NoSuchProcess):
                    flow_run.terminate()
            psutil.wait_procs(flow_runs, timeout=_FLOW_RUN_GRACE_SECONDS)
        super().stop()


def _answer_of(url: str) -> object:
    """Return the time of a clock if anything answers at this address, also with an error; else None."""
    try:
        with api_requests.get(url, _PROBE_SECONDS):
            return time.monotonic()
    except urllib.error.HTTPError as error:
        error.close()
        return time.monotonic()
    except (OSError, ValueError, http.client.HTTPException):
        return None


def rotate(log_path: Path, limit_bytes: int = _LOG_BYTES) -> None:
    """Keep a log small: beyond a size its content moves to ``NAME.log.1``, and that to ``NAME.log.2``.

    Whoever writes to it appends, and goes on in the same file, which is emptied and not replaced.
    """
    with contextlib.suppress(FileNotFoundError):
        if log_path.stat().st_size < limit_bytes:
            return
        first, second = (log_path.with_name(f"{log_path.name}.{number}") for number in (1, 2))
        if first.exists():
            first.replace(second)
        with log_path.open("rb") as log, open(first, "wb", opener=open_private) as copy:
            shutil.copyfileobj(log, copy)
        os.truncate(log_path, 0)
