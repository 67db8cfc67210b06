"""Run a Prefect server, the deployments of the three flows, and a worker, for `shardmill up`.

Both services end with this process, by a lifeline (flows.server.services), and each run ends with its worker
(flows.flow_runs.children). So nothing remains, however this process ends.
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
from flows.flow_runs import lost_runs
from flows.home import RunningUp
from flows.server import backlog, deployments, services
from infra.errors import EnvironmentFault, UsageError
from infra.readable import counted

_WATCH_SECONDS = 1.0
_TIDY_SECONDS = 10.0
_RESTART_SECONDS = 2.0
# A service that ends three times in a row, each time sooner than this after its start, is given up.
_LIVED_SECONDS = 30.0
_SHORT_LIVES = 3

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Address of the server, folders of the worker, and the password as ``user:password`` or None."""

    host: str
    port: int
    root: str
    runs: str
    auth: str | None = None


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
        watch = stack.enter_context(Watch(options, say))
        up = RunningUp(os.getpid(), options.host, options.port, options.root, options.runs, options.auth)
        home.write_running_up(up)
        stack.callback(home.clear_running_up)
        yield watch


def check_address(options: UpOptions) -> None:
    """Raise UsageError or EnvironmentFault when a server cannot or must not listen on this address."""
    try:
        services.try_to_listen(options.host, options.port)
    except socket.gaierror as error:
        raise UsageError(
            f"--host {options.host}: no such address", "for example 127.0.0.1, or 0.0.0.0 for all"
        ) from error
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise EnvironmentFault(
            f"port {options.port} of {options.host} {why}",
            "use another port: shardmill up --port 0 finds a free one",
        ) from error
    _check_password(options)


def _check_password(options: UpOptions) -> None:
    if options.auth is None and options.host not in services.LOOPBACK:
        raise UsageError(
            f"--host {options.host} admits other machines; whoever reaches the server can run commands",
            "set a password: --auth user:password (or the variable PREFECT_SERVER_API_AUTH_STRING)",
        )
    if options.auth is not None and not all(options.auth.partition(":")):
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
            **(services.password_settings(options.auth) if options.auth else {}),
        }
        self._server: services.Server | None = None
        self._worker: services.Worker | None = None
        self._started: dict[str, float] = {}
        self._short_lives: dict[str, int] = {}

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

        Raises:
            EnvironmentFault: A service ends again and again.
        """
        tidied = time.monotonic()
        while True:
            time.sleep(_WATCH_SECONDS)
            if time.monotonic() - tidied > _TIDY_SECONDS:
                self._tidy()
                tidied = time.monotonic()
            if self._server is not None and self._server.process.poll() is not None:
                self._check_lived("Prefect's server", self._server)
                self._start_server()
            if self._worker is not None and self._worker.process.poll() is not None:
                self._check_lived("the worker", self._worker)
                self._end_stale_runs()
                self._start_worker()

    def _start(self) -> None:
        self._say("Starting Prefect's server ...")
        self._start_server()
        log = self._logs / "deploy.log"
        os.environ.update(self._api_environment())
        deployments.make_pool()  # first: a deployment names its pool
        deploying = deployments.start_deploying(self._api_environment(), log)
        try:
            self._end_stale_runs()
            self._tidy()
            self._say("Registering the deployments ...")
        except BaseException:
            deploying.kill()
            deploying.wait()
            raise
        deployments.finish_deploying(deploying, log)
        self._start_worker()

    def _end_stale_runs(self) -> None:
        stale = deployments.end_stale_runs()
        if stale:
            self._say(f"marked {counted(stale, 'run')} of a killed worker as crashed")

    def _tidy(self) -> None:
        """Mark lost runs as Crashed and cancel superfluous ones."""
        import httpx

        # The server may be stopping now; the next call comes soon.
        with contextlib.suppress(httpx.HTTPError):
            lost = lost_runs.mark_lost_commands() + lost_runs.mark_lost_subflows()
            if lost:
                self._say(f"marked {counted(lost, 'run')} as crashed whose process was killed")
            backlog.cancel_superfluous(deployments.POOL)

    def _start_server(self) -> None:
        with home.server_start():
            self._server = services.Server(
                self._options.host,
                self._options.port,
                brief=False,
                log_path=self._logs / "server.log",
                env=self._environment,
            )
            self._started["Prefect's server"] = time.monotonic()
            self._server.wait_until_healthy()

    def _start_worker(self) -> None:
        self._worker = services.Worker(
            deployments.POOL, log_path=self._logs / "worker.log", env=self._api_environment()
        )
        self._started["the worker"] = time.monotonic()

    def _api_environment(self) -> dict[str, str]:
        assert self._server is not None
        return self._environment | {"PREFECT_API_URL": self._server.api_url}

    def _check_lived(self, what: str, service: services.Service) -> None:
        service.stop()
        lived = time.monotonic() - self._started[what]
        self._short_lives[what] = self._short_lives.get(what, 0) + 1 if lived < _LIVED_SECONDS else 0
        if self._short_lives[what] >= _SHORT_LIVES:
            service.check(what)
        self._say(
            f"{what} ended with status {service.process.returncode}; starting it again "
            f"(see {service.log_path})"
        )
        time.sleep(_RESTART_SECONDS)

    def _stop(self) -> None:
        """Stop the worker first: its runs tell the server how they ended."""
        for service in (self._worker, self._server):
            if service is not None:
                service.stop()
