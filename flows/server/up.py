"""Run Prefect's server, the deployments, a worker, the page and TensorBoard, for `shardmill up`.

All services end with this process, by a lifeline (flows.server.services), and each run ends with its worker
(flows.flow_runs.jobs.children). So nothing remains, however this process ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flows import home
from flows.home import RunningUp, server_url
from flows.page.options import TENSORBOARD_URL
from flows.scheduling import inboxes
from flows.server import deployments, services
from flows.server.database import DATABASE_SETTING, check_database
from flows.server.tidying import stale_runs
from flows.server.tidying.reaper import Reaper
from infra.errors import EnvironmentFault, UsageError
from infra.processes.ports import free_port
from infra.readable import counted

_WATCH_SECONDS = 1.0
_TIDY_SECONDS = 10.0
_RESTART_SECONDS = 2.0
# A service that ends three times in a row, each time sooner than this after its start, is given up.
_LIVED_SECONDS = 30.0
_SHORT_LIVES = 3

_SERVER, _WORKER, _PAGE, _BOARD = "Prefect's server", "the worker", "the page", "TensorBoard"
_INBOXES = "the watch of inboxes"
# Without these the platform still works: when one ends again and again, the others stay.
_OPTIONAL = (_PAGE, _BOARD, _INBOXES)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The services that `shardmill up` starts.

    Attributes:
        host, port: address of Prefect's server.
        root, runs: folders of the worker.
        page_port: port of the page, on the same host.
        auth: password of server and page as ``user:password``, or None.
        has_tensorboard: whether TensorBoard is started.
        database: URL of Prefect's database; None: SQLite in SHARDMILL_HOME.
    """

    host: str
    port: int
    root: str
    runs: str
    page_port: int
    auth: str | None = None
    has_tensorboard: bool = True
    database: str | None = None


@contextlib.contextmanager
def running(options: UpOptions, say: Say) -> Iterator[Watch]:
    """Start everything, and stop it when the block ends.

    Raises:
        LockedError: Another `shardmill up` of this home runs.
        UsageError: The server must not listen on this address.
        EnvironmentFault: A service could not be started.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(home.up_lock())
        check_address(options)
        check_database(options.database)
        watch = stack.enter_context(Watch(options, say))
        up = RunningUp(
            os.getpid(),
            options.host,
            options.port,
            options.root,
            options.runs,
            options.auth,
            options.page_port,
            options.has_tensorboard,
        )
        home.write_running_up(up)
        stack.callback(home.clear_running_up)
        yield watch


def check_address(options: UpOptions) -> None:
    """Raise UsageError or EnvironmentFault when the servers cannot or must not listen on these addresses."""
    if options.port == options.page_port:
        raise UsageError(
            f"--page-port {options.page_port} is the port of the server too",
            "choose another one; --page-port 0 finds a free one",
        )
    check_place(options.host, options.port, options.auth, "--port")
    check_place(options.host, options.page_port, options.auth, "--page-port")


def check_place(host: str, port: int, auth: str | None, option: str) -> None:
    """Raise an error when a server cannot or must not listen on an address.

    Args:
        host: address to listen on.
        port: port to listen on.
        auth: the password, or None.
        option: the option that chooses the port.

    Raises:
        UsageError: other machines could come in without a password.
        EnvironmentFault: the port is taken.
    """
    try:
        services.try_to_listen(host, port)
    except socket.gaierror as error:
        raise UsageError(
            f"--host {host}: no such address", "for example 127.0.0.1, or 0.0.0.0 for all"
        ) from error
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise EnvironmentFault(
            f"port {port} of {host} {why}",
            f"use another port: {option} 0 finds a free one",
        ) from error
    _check_password(host, auth)


def _check_password(host: str, auth: str | None) -> None:
    if auth is None and host not in home.LOOPBACK:
        raise UsageError(
            f"--host {host} admits other machines; whoever reaches the server can run commands",
            "set a password: --auth user:password (or the variable PREFECT_SERVER_API_AUTH_STRING)",
        )
    if auth is not None and not all(auth.partition(":")):
        raise UsageError("--auth: not a user and a password", "for example --auth shardmill:LONG-PASSWORD")


class Watch:
    """The services of one `shardmill up`: starts them in order, keeps them running, stops them in order."""

    def __init__(self, options: UpOptions, say: Say) -> None:
        self._options, self._say = options, say
        self._logs = home.logs_folder()
        self._environment = home.prefect_environment() | {
            "SHARDMILL_ROOT": options.root,
            "SHARDMILL_RUNS": options.runs,
            # The page that the server hands out asks for its data wherever the page itself came from.
            "PREFECT_SERVER_UI_API_URL": "/api",
            # A run starts within seconds; the default of 10 is meant for a server that many workers ask.
            "PREFECT_WORKER_QUERY_SECONDS": "3",
            # Runs link to the page (flows.flow_runs.showing.addresses).
            "SHARDMILL_PAGE_URL": server_url(options.host, options.page_port),
            **(services.password_settings(options.auth) if options.auth else {}),
            **({DATABASE_SETTING: options.database} if options.database else {}),
        }
        self._board_port = free_port()
        self._start_again: dict[str, Callable[[], services.Service]] = {
            _SERVER: self._server,
            _WORKER: self._worker,
            _INBOXES: self._inboxes,
            _PAGE: self._page,
            **({_BOARD: self._board} if options.has_tensorboard else {}),
        }
        self._services: dict[str, services.Service] = {}
        self._reaper = Reaper(has_worker=True)
        self._started: dict[str, float] = {}
        self._short_lives: dict[str, int] = {}
        self._missing: set[str] = set()
        self._said = ""

    def __enter__(self) -> Watch:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def keep_running(self) -> None:
        """Restart services that end, until a signal ends this process.

        While the server or its database is away, what needs them is started later.

        Raises:
            EnvironmentFault: A service ends again and again.
        """
        tidied = time.monotonic()
        while True:
            time.sleep(_WATCH_SECONDS)
            if time.monotonic() - tidied > _TIDY_SECONDS:
                self._tidy()
                tidied = time.monotonic()
            for what, service in list(self._services.items()):
                if service.has_ended and self._may_live_again(what, service):
                    self._missing.add(what)
            for what in [what for what in self._start_again if what in self._missing]:
                self._try_to_start(what)

    def _start(self) -> None:
        self._say("Starting Prefect's server ...")
        self._start_service(_SERVER)
        if self._options.has_tensorboard:
            self._start_service(_BOARD)
        self._start_service(_PAGE)
        os.environ.update(self._api_environment())
        deployments.make_pool()  # first: a deployment names its pool
        with deployments.Deploying(self._api_environment(), self._logs / "deploy.log") as deploying:
            self._end_stale_runs()
            self._tidy()
            self._say("Registering the deployments ...")
            deploying.finish()
        self._start_service(_WORKER)

    def _try_to_start(self, what: str) -> None:
        """Start a service that has ended. If a service that it needs is away, leave it for the next look.

        Raises:
            EnvironmentFault: It fails again and again although nothing is away.
        """
        import httpx
        from prefect.exceptions import ObjectNotFound

        try:
            if what == _SERVER:
                check_database(self._options.database)
            elif what == _WORKER:
                self._end_stale_runs()
        except (httpx.HTTPError, ObjectNotFound, EnvironmentFault) as error:
            self._say_once(f"{what} starts later: {getattr(error, 'message', error)}")
            return
        try:
            self._start_service(what)
        except EnvironmentFault as error:
            self._short_lives[what] = self._short_lives.get(what, 0) + 1
            if self._short_lives[what] >= _SHORT_LIVES:
                raise
            self._services.pop(what).stop()
            self._say_once(f"{what} starts later: {error.message.splitlines()[0]}")
            return
        self._missing.remove(what)
        self._said = ""

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._say(text)
        self._said = text

    def _end_stale_runs(self) -> None:
        stale = stale_runs.end_stale_runs()
        if stale:
            self._say(f"marked {counted(stale, 'run')} of a killed worker as crashed")

    def _tidy(self) -> None:
        """Put the history in order (flows.server.tidying.reaper), and watch inboxes."""
        import httpx
        from prefect.exceptions import ObjectNotFound

        # The server may be stopping now, or a person deletes runs; the next call comes soon.
        with contextlib.suppress(httpx.HTTPError, ObjectNotFound):
            for line in self._reaper.reap():
                self._say(line)
            self._watch_inboxes()

    def _watch_inboxes(self) -> None:
        """Start the watch of inboxes once there is one."""
        gave_up = self._short_lives.get(_INBOXES, 0) >= _SHORT_LIVES
        if _INBOXES not in {*self._services, *self._missing} and not gave_up and inboxes.has_inboxes():
            self._start_service(_INBOXES)

    def _start_service(self, what: str) -> None:
        self._started[what] = time.monotonic()
        self._services[what] = self._start_again[what]()

    def _server(self) -> services.Server:
        server = services.Server(
            self._options.host,
            self._options.port,
            log_path=self._logs / "server.log",
            env=self._environment,
        )
        self._services[_SERVER] = server  # so that it is stopped if it never answers
        server.wait_until_healthy()
        return server

    def _worker(self) -> services.Worker:
        log = self._logs / "worker.log"
        # Prefect's server answers 500 while its database is away: the runs ask again, for a minute.
        env = self._api_environment() | {"PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}
        return services.Worker(deployments.POOL, log_path=log, env=env)

    def _inboxes(self) -> services.Inboxes:
        return services.Inboxes(log_path=self._logs / "inboxes.log", env=self._api_environment())

    def _page(self) -> services.Page:
        board = {TENSORBOARD_URL: server_url("127.0.0.1", self._board_port)}
        env = self._api_environment() | (board if self._options.has_tensorboard else {})
        log = self._logs / "page.log"
        return services.Page(self._options.host, self._options.page_port, log_path=log, env=env)

    def _board(self) -> services.TensorBoard:
        log = self._logs / "tensorboard.log"
        return services.TensorBoard(self._board_port, log_path=log, env=self._environment)

    def _api_environment(self) -> dict[str, str]:
        ui_url = server_url(self._options.host, self._options.port)
        return self._environment | {"PREFECT_API_URL": f"{ui_url}/api", "PREFECT_UI_URL": ui_url}

    def _may_live_again(self, what: str, service: services.Service) -> bool:
        """Stop the remaining processes of a service that ended; return whether to start it again.

        Raises:
            EnvironmentFault: It ended again and again, and the platform cannot do without it.
        """
        service.stop()
        lived = time.monotonic() - self._started[what]
        self._short_lives[what] = self._short_lives.get(what, 0) + 1 if lived < _LIVED_SECONDS else 0
        del self._services[what]
        ended = f"{what} ended with status {service.process.returncode}"
        if self._short_lives[what] >= _SHORT_LIVES:
            if what not in _OPTIONAL:
                service.check(what)
            self._say(f"{ended} again and again; the platform goes on without it (see {service.log_path})")
            return False
        self._say(f"{ended}; starting it again (see {service.log_path})")
        time.sleep(_RESTART_SECONDS)
        return True

    def _stop(self) -> None:
        """Stop the worker first: its runs tell the server how they ended. The server goes last."""
        for what in (_INBOXES, _WORKER, _PAGE, _BOARD, _SERVER):
            if what in self._services:
                self._services[what].stop()
