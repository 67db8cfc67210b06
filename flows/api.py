"""Which Prefect API the commands talk to.

In order: ``PREFECT_API_URL``, the `shardmill up` of this machine, or a brief server of their own that lives
as long as the command and keeps its history where `shardmill up` shows it later.

Prefect reads its settings when it is imported, so ``prefect_api`` comes before any import of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from flows import home, services
from infra.errors import ConfigError, EnvironmentFault


@dataclass(frozen=True, slots=True)
class Api:
    """A Prefect API; ``ui_url`` where its web interface stays when the command is over."""

    url: str
    ui_url: str | None

    def run_page(self, flow_run_id: object) -> str | None:
        """Address of a run's page, or None where there is no web interface."""
        return f"{self.ui_url}/runs/flow-run/{flow_run_id}" if self.ui_url else None


def standing_api() -> Api | None:
    """The API that is there already, or None.

    Raises:
        ConfigError: ``PREFECT_API_URL`` is no address.
        EnvironmentFault: no Prefect server answers there.
    """
    url = os.environ.get("PREFECT_API_URL")
    if url:
        if not _is_address(url):
            raise ConfigError(
                f"PREFECT_API_URL={url!r} is not the address of a server",
                "it is like http://127.0.0.1:4200/api; without it, an API of this machine is taken",
            )
        if not services.answers(url, timeout_seconds=10):
            raise EnvironmentFault(
                f"no Prefect server answers at PREFECT_API_URL={url}",
                "start it, or unset PREFECT_API_URL; the address of an API ends in /api",
            )
        return Api(url, os.environ.get("PREFECT_UI_URL") or url.rstrip("/").removesuffix("/api"))
    up = home.running_up()
    if up is not None and services.answers(up.api_url):
        return Api(up.api_url, up.ui_url)
    return None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no port, or half an IPv6 address
        return False


@contextlib.contextmanager
def prefect_api() -> Iterator[Api]:
    """The API for one command, with this process's environment set for it.

    Raises:
        EnvironmentFault: there is none, and none could be started.
    """
    api = standing_api()
    # The console belongs to the progress bar; Prefect's records of the run go to its API in any case.
    # So do not its complaints that the API is gone: the command's own error says so.
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    os.environ["PREFECT_LOGGING_INTERNAL_LEVEL"] = "CRITICAL"
    logging.raiseExceptions = False
    if api is not None:
        own = {} if os.environ.get("PREFECT_API_URL") else home.prefect_environment()
        os.environ.update(own | home.quiet_environment() | {"PREFECT_API_URL": api.url})
        with _faults_named(api.url):
            yield api
        return
    os.environ.update(home.prefect_environment())
    with _brief_server() as server:
        try:
            with _faults_named(server.api_url):
                yield Api(server.api_url, None)
        finally:
            _drain()


@contextlib.contextmanager
def _brief_server() -> Iterator[services.Server]:
    """A healthy server, and Prefect imported with the settings for it."""
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
    """Turn what Prefect's client raises into an error that names the server."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        raise EnvironmentFault(
            f"Prefect's API at {url} failed: {error or type(error).__name__}",
            "is it running, and of this Prefect release? Run the same command again: it goes on where it was",
        ) from error


def _drain() -> None:
    """Wait until the server has what this process sent: it writes logs and task runs behind its answers."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()
    EventsWorker.drain_all(timeout=10)
