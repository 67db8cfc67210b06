"""Run Prefect's server, the deployments, a worker, the page and TensorBoard, for `shardmill up`.

All services end with this process, by a lifeline (shardmill.flows.server.services), and each run ends with
its worker (shardmill.flows.flow_runs.worker_process). So nothing remains, however this process ends.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from shardmill.flows import home
from shardmill.flows.flow_runs import api_requests
from shardmill.flows.home import server_url
from shardmill.flows.page.options import REVIEW, TENSORBOARD_URL
from shardmill.flows.problems import set_problems
from shardmill.flows.server import deployments, services
from shardmill.flows.server.api import check_place
from shardmill.flows.server.database import DATABASE_SETTING, check_database
from shardmill.flows.server.kept_service import KeptService, Say
from shardmill.flows.server.running_up import RunningUp, clear_running_up, up_lock, write_running_up
from shardmill.flows.server.tidying import stale_runs
from shardmill.flows.server.tidying.reaper import Reaper
from shardmill.infra.errors import EnvironmentFault, UsageError
from shardmill.infra.processes.ports import free_port
from shardmill.infra.processes.process import ignoring_signals
from shardmill.infra.readable import counted

_WATCH_SECONDS = 1.0
_TIDY_SECONDS = 10.0
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The services that `shardmill up` starts.

    Attributes:
        host, port: address of Prefect's server.
        root, runs: the worker's default folders of datasets and of training runs.
        page_port: port of the page, on the same host.
        auth: password of server and page as ``user:password``, or None.
        has_tensorboard: whether TensorBoard is started.
        database: URL of Prefect's database; None: SQLite in SHARDMILL_HOME.
        review: whether the page may write decisions about records.
    """

    host: str
    port: int
    root: str
    runs: str
    page_port: int
    auth: str | None = None
    has_tensorboard: bool = True
    database: str | None = None
    review: bool = False

    def check(self) -> None:
        """Raise UsageError or EnvironmentFault when the servers cannot or must not run like this."""
        if self.port == self.page_port:
            raise UsageError(
                f"--page-port {self.page_port} is the port of the server too",
                "choose another one; --page-port 0 finds a free one",
            )
        check_place(self.host, self.port, self.auth, "--port")
        check_place(self.host, self.page_port, self.auth, "--page-port")
        check_database(self.database)


@contextlib.contextmanager
def running(options: UpOptions, say: Say) -> Iterator[Platform]:
    """Start everything, and stop it when the block ends.

    Raises:
        LockedError: Another `shardmill up` of this home runs.
        UsageError: The server must not listen on this address.
        EnvironmentFault: A service could not be started.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(up_lock(process_id=os.getpid()))
        options.check()
        platform = stack.enter_context(Platform(options, say))
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
        write_running_up(up)
        stack.callback(clear_running_up)
        yield platform


class Platform:
    """The services of one `shardmill up`: starts them in order, keeps them running, stops them in order."""

    def __init__(self, options: UpOptions, say: Say) -> None:
        self._options, self._say = options, say
        self._logs = home.logs_folder()
        self._environment = home.prefect_environment() | {
            "SHARDMILL_ROOT": options.root,
            "SHARDMILL_RUNS": options.runs,
            REVIEW: "1" if options.review else "0",
            # The web interface asks for its data at the address from which it was loaded itself.
            "PREFECT_SERVER_UI_API_URL": "/api",
            # The worker looks for runs often, so that they start soon. Prefect's default of 10 is for a
            # server that many workers ask.
            "PREFECT_WORKER_QUERY_SECONDS": "3",
            # Runs link to the page (shardmill.flows.flow_runs.showing.markdown).
            "SHARDMILL_PAGE_URL": server_url(options.host, options.page_port),
            **(services.password_settings(options.auth) if options.auth else {}),
            **({DATABASE_SETTING: options.database} if options.database else {}),
        }
        self._board_port = free_port(other_than=(options.port, options.page_port))
        self._server = KeptService(
            services.SERVER, self._start_server, say, need=lambda: check_database(options.database)
        )
        self._watch = KeptService(services.WATCH, self._start_watch, say, is_optional=True)
        self._board = KeptService(
            services.BOARD, self._start_board, say, is_optional=True, is_wanted=options.has_tensorboard
        )
        self._page = KeptService(services.PAGE, self._start_page, say, is_optional=True)
        self._worker = KeptService(services.WORKER, self._start_worker, say, need=self._need_of_worker)
        self._reaper = Reaper(has_worker=True)
        self._untidy = ""
        self._tidying: threading.Thread | None = None

    @property
    def _services(self) -> tuple[KeptService, ...]:
        """The services in the order in which they are started."""
        return self._server, self._watch, self._board, self._page, self._worker

    def __enter__(self) -> Platform:
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

        While the server or its database is unavailable, services that need it are started later.

        Raises:
            EnvironmentFault: A service ends again and again.
        """
        tidied = time.monotonic()
        while True:
            time.sleep(_WATCH_SECONDS)
            services.beat(services.UP)
            # A server that hangs must not hold up the look at the services.
            is_tidying = self._tidying is not None and self._tidying.is_alive()
            if time.monotonic() - tidied > _TIDY_SECONDS and not is_tidying:
                self._tidying = threading.Thread(target=self._tidy, name="tidying", daemon=True)
                self._tidying.start()
                tidied = time.monotonic()
            for service in self._services:
                service.keep()

    def _start(self) -> None:
        home.make_private()
        self._say("Starting Prefect's server ...")
        set_problems("service", [])
        self._server.begin()
        self._watch.begin()
        if self._board.is_wanted:
            self._board.begin()
        self._page.begin()
        os.environ.update(self._api_environment())
        deployments.make_pool()  # first: a deployment names its pool
        with deployments.Deploying(self._api_environment(), self._logs / "deploy.log") as deploying:
            self._end_stale_runs()
            self._tidy()
            self._say("Registering the deployments ...")
            deploying.finish()
        self._worker.begin()

    def _stop(self) -> None:
        """Stop the worker before the server, since the runs of the worker tell the server how they ended."""
        with ignoring_signals():
            for service in reversed(self._services):
                service.stop()
            if self._tidying is not None:
                self._tidying.join(_TIDY_SECONDS)

    def _need_of_worker(self) -> None:
        if not api_requests.answers(self._api_environment()["PREFECT_API_URL"], _ANSWER_SECONDS):
            raise EnvironmentFault(f"{services.SERVER} does not answer", "it is started again if it hangs")
        self._end_stale_runs()

    def _end_stale_runs(self) -> None:
        stale = stale_runs.end_stale_runs()
        if stale:
            self._say(f"marked {counted(stale, 'run')} of a killed worker as crashed")

    def _tidy(self) -> None:
        """Put the history in order (shardmill.flows.server.tidying.reaper).

        A failure, such as a full disk, must not end the services. It is reported once; the next call tries
        again.
        """
        from prefect.exceptions import ObjectNotFound

        untidy = ""
        try:
            for line in self._reaper.reap():
                self._say(line)
        except (httpx.HTTPError, ObjectNotFound):
            return  # the server may be stopping now, or a person deletes runs
        except Exception as error:  # noqa: BLE001
            untidy = f"the history cannot be put in order: {error}"
        if untidy and untidy != self._untidy:
            self._say(untidy)
        self._untidy = untidy

    def _start_server(self) -> services.Service:
        log = self._logs / "server.log"
        return services.Server(self._options.host, self._options.port, log_path=log, env=self._environment)

    def _start_worker(self) -> services.Service:
        log = self._logs / "worker.log"
        # Prefect's server answers 500 while its database is unavailable: the runs then repeat their requests
        # for a minute.
        env = self._api_environment() | {"PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}
        return services.Worker(deployments.POOL, log_path=log, env=env)

    def _start_watch(self) -> services.Service:
        return services.Watch(log_path=self._logs / "watch.log", env=self._api_environment())

    def _start_page(self) -> services.Service:
        board = {TENSORBOARD_URL: server_url("127.0.0.1", self._board_port)}
        env = self._api_environment() | (board if self._options.has_tensorboard else {})
        log = self._logs / "page.log"
        return services.Page(self._options.host, self._options.page_port, log_path=log, env=env)

    def _start_board(self) -> services.Service:
        log = self._logs / "tensorboard.log"
        return services.TensorBoard(self._board_port, log_path=log, env=self._environment)

    def _api_environment(self) -> dict[str, str]:
        ui_url = server_url(self._options.host, self._options.port)
        return self._environment | {"PREFECT_API_URL": f"{ui_url}/api", "PREFECT_UI_URL": ui_url}
