"""Find or start the Prefect API for a command.

The first of these is used: the API at ``PREFECT_API_URL``; the API of the `shardmill up` of this machine; a
brief server that lives as long as the command. The brief server keeps its history where `shardmill up` shows
it later.

Prefect reads its settings when it is imported, so ``prefect_api`` must be entered before Prefect is imported.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from flows import home
from flows.server import services
from infra.errors import GO_ON, ConfigError, EnvironmentFault


@dataclass(frozen=True, slots=True)
class Api:
    """A Prefect API.

    Attributes:
        url: Address of the API.
        ui_url: Address of the web interface; None when it ends with the command.
        auth: The password as ``user:password``, or None.
    """

    url: str
    ui_url: str | None
    auth: str | None = None

    def run_page(self, flow_run_id: object) -> str | None:
        """The address of a run's page; None without a web interface."""
        return f"{self.ui_url}/runs/flow-run/{flow_run_id}" if self.ui_url else None


class ApiLost(EnvironmentFault):
    """Prefect's API failed while a command used it."""


def standing_api() -> Api | None:
    """The API that exists already, or None.

    Raises:
        ConfigError: ``PREFECT_API_URL`` is not an address.
        EnvironmentFault: No Prefect server answers there, or it asks for another password.
    """
    url = os.environ.get("PREFECT_API_URL")
    if url:
        if not _is_address(url):
            raise ConfigError(
                f"PREFECT_API_URL={url!r} is not the address of a server",
                "set it to an address like http://127.0.0.1:4200/api, or unset it to use a local API",
            )
        if not services.answers(url, timeout_seconds=10):
            raise EnvironmentFault(
                f"no Prefect server answers at PREFECT_API_URL={url}",
                "start it, or unset PREFECT_API_URL; the address of an API ends in /api",
            )
        auth = os.environ.get("PREFECT_API_AUTH_STRING")
        _check_password(url, auth)
        return Api(url, os.environ.get("PREFECT_UI_URL") or url.rstrip("/").removesuffix("/api"), auth)
    up = home.running_up()
    if up is not None and services.answers(up.api_url):
        return Api(up.api_url, up.ui_url, up.auth)
    return None


def _check_password(url: str, auth: str | None) -> None:
    if not services.lets_in(url, auth):
        raise EnvironmentFault(
            f"the Prefect server at PREFECT_API_URL={url} "
            + ("does not accept the password in PREFECT_API_AUTH_STRING" if auth else "asks for a password"),
            "set PREFECT_API_AUTH_STRING=user:password, as the server was started with",
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no port, or half an IPv6 address
        return False


@contextlib.contextmanager
def prefect_api() -> Iterator[Api]:
    """Provide the API for one command, and set this process's environment for it.

    Raises:
        EnvironmentFault: There is no API, and none could be started.
        ApiLost: The API failed meanwhile.
    """
    api = standing_api()
    # The console belongs to the progress bar. Prefect sends the run's logs to its API in any case, and the
    # command's own error tells when the API is lost.
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    os.environ["PREFECT_LOGGING_INTERNAL_LEVEL"] = "CRITICAL"
    logging.raiseExceptions = False
    if api is not None:
        own = {} if os.environ.get("PREFECT_API_URL") else home.prefect_environment()
        password = {"PREFECT_API_AUTH_STRING": api.auth} if api.auth else {}
        os.environ.update(own | home.quiet_environment() | password | {"PREFECT_API_URL": api.url})
        with _faults_named(api.url):
            yield api
        return
    # A password of its own keeps everybody else out. Nobody restarts a brief server that has died, so its
    # client need not wait for minutes.
    password = services.password_settings(f"shardmill:{secrets.token_urlsafe()}")
    os.environ.update(home.prefect_environment() | password | {"PREFECT_CLIENT_MAX_RETRIES": "1"})
    with _brief_server() as server:
        try:
            with _faults_named(server.api_url):
                yield Api(server.api_url, None)
        finally:
            _drain()


@contextlib.contextmanager
def _brief_server() -> Iterator[services.Server]:
    """Start a server, and import Prefect with the settings for it meanwhile."""
    with contextlib.ExitStack() as stack:
        with home.server_start():
            server = stack.enter_context(
                services.Server(
                    "127.0.0.1",
                    services.free_port(),
                    brief=True,
                    log_path=home.logs_folder() / "brief-server.log",
                    env={},
                )
            )
            os.environ["PREFECT_API_URL"] = server.api_url
            stack.callback(os.environ.pop, "PREFECT_API_URL", None)
            import prefect.flow_engine  # 2 s, while the server starts
            import prefect.task_engine  # noqa: F401

            server.wait_until_healthy()
        yield server


@contextlib.contextmanager
def _faults_named(url: str) -> Iterator[None]:
    """Turn errors of Prefect's client into an error that names the server."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        raise ApiLost(
            f"Prefect's API at {url} failed: {error or type(error).__name__}",
            f"check that it runs and has this Prefect release, then {GO_ON}",
        ) from error


def _drain() -> None:
    """Wait until the server has the logs and events of this process, which are sent in the background."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()
    EventsWorker.drain_all(timeout=10)
