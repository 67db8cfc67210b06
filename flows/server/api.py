"""Find the Prefect API for a command: the address in ``PREFECT_API_URL``, or the local `shardmill up`.

Prefect reads its settings when it is imported, so ``prefect_api`` must be entered before Prefect is imported.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from shardmill.flows import home
from shardmill.flows.flow_runs import api_requests
from shardmill.flows.home import LOOPBACK
from shardmill.flows.server.running_up import running_up, up_process
from shardmill.infra.errors import GO_ON, ConfigError, EnvironmentFault, UsageError


def check_place(host: str, port: int, auth: str | None, option: str) -> None:
    """Raise an error when a server cannot or must not listen on an address.

    Args:
        host: address to listen on.
        port: port to listen on.
        auth: the password, or None.
        option: the option that chooses the port.

    Raises:
        UsageError: there is no such host, other machines could connect without a password, or the
            password is not ``user:password``.
        EnvironmentFault: the port is taken or cannot be used.
    """
    try:
        _try_to_listen(host, port)
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
    _check_admission(host, auth)


def _try_to_listen(host: str, port: int) -> None:
    """Raise OSError when a server could not listen on this address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()


def _check_admission(host: str, auth: str | None) -> None:
    if auth is None and host not in LOOPBACK:
        raise UsageError(
            f"--host {host} admits other machines; whoever reaches the server can run commands",
            "set a password: --auth user:password (or the variable PREFECT_SERVER_API_AUTH_STRING)",
        )
    if auth is not None and not all(auth.partition(":")):
        raise UsageError("--auth: not a user and a password", "for example --auth shardmill:LONG-PASSWORD")


_PATIENCE_SECONDS = 6.0
_NEEDED_PATIENCE_SECONDS = 45.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Api:
    """A Prefect API.

    Attributes:
        url: Address of the API.
        ui_url: Address of the web interface.
        auth: The password as ``user:password``, or None.
    """

    url: str
    ui_url: str
    auth: str | None = None

    def run_page(self, flow_run_id: object) -> str:
        """Return the address of the page of a flow run."""
        return f"{self.ui_url}/runs/flow-run/{flow_run_id}"


class ApiLost(EnvironmentFault):
    """Prefect's API failed while a command used it."""


def standing_api(patience_seconds: float = _PATIENCE_SECONDS) -> Api | None:
    """Return the API that a command can use now, or None.

    Args:
        patience_seconds: time for the server of a running `shardmill up` to answer.

    Raises:
        ConfigError: ``PREFECT_API_URL`` is not an address.
        EnvironmentFault: No Prefect server answers there, or it asks for another password.
    """
    url = os.environ.get("PREFECT_API_URL")
    if url:
        if not _is_address(url):
            raise ConfigError(
                f"PREFECT_API_URL={url!r} is not the address of a server",
                "set it to an address like http://127.0.0.1:4200/api, or unset it to run without a server",
            )
        if not api_requests.answers(url, timeout_seconds=10):
            raise EnvironmentFault(
                f"no Prefect server answers at PREFECT_API_URL={url}",
                "start it, or unset PREFECT_API_URL; the address of an API ends in /api",
            )
        auth = os.environ.get("PREFECT_API_AUTH_STRING")
        _check_password(url, auth)
        return Api(url, os.environ.get("PREFECT_UI_URL") or url.rstrip("/").removesuffix("/api"), auth)
    up = running_up()
    if up is not None and _answers_within(up.api_url, patience_seconds):
        return Api(up.api_url, up.ui_url, up.auth)
    return None


def need_api(purpose: str) -> None:
    """Check that a command that cannot do without a Prefect server has one.

    A server of a running `shardmill up` gets more time to answer than where a command can go on without it.

    Args:
        purpose: What the server would do, as "that could keep a schedule".

    Raises:
        ConfigError: ``PREFECT_API_URL`` is not an address.
        EnvironmentFault: There is no server, it does not answer, or it asks for another password.
    """
    if standing_api(_NEEDED_PATIENCE_SECONDS) is not None:
        return
    process_id = up_process()
    if process_id is None:
        raise EnvironmentFault(f"there is no Prefect server {purpose}", "start one: shardmill up --detach")
    raise EnvironmentFault(
        f"the Prefect server of shardmill up (process {process_id}) has not answered within "
        f"{_NEEDED_PATIENCE_SECONDS:g} seconds",
        "run the command again; if it still does not answer: shardmill down; shardmill up --detach",
    )


def _answers_within(url: str, seconds: float) -> bool:
    """Tell whether an API answers in time. Ask again while `shardmill up` starts its server again."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if api_requests.answers(url, timeout_seconds=left):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _check_password(url: str, auth: str | None) -> None:
    if not api_requests.lets_in(url, auth):
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
def prefect_api(api: Api | None = None) -> Iterator[Api]:
    """Set this process's environment for an API (by default ``standing_api``), before Prefect is imported.

    Raises:
        EnvironmentFault: There is no API.
        ApiLost: The API failed while the block ran.
    """
    api = api or standing_api()
    if api is None:
        raise EnvironmentFault("no Prefect server is running", "start one: shardmill up --detach")
    # The console is for the progress bar. Prefect sends the logs of the run to its API in any case, and the
    # command itself reports an error if the API is lost.
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    os.environ["PREFECT_LOGGING_INTERNAL_LEVEL"] = "CRITICAL"
    logging.raiseExceptions = False
    own = {} if os.environ.get("PREFECT_API_URL") else home.prefect_environment()
    password = {"PREFECT_API_AUTH_STRING": api.auth} if api.auth else {}
    os.environ.update(own | home.quiet_environment() | password | {"PREFECT_API_URL": api.url})
    with _faults_named(api.url):
        yield api


@contextlib.contextmanager
def _faults_named(url: str) -> Iterator[None]:
    """Turn errors of Prefect's client into an error that names the server."""
    import httpx

    try:
        yield
    except (httpx.HTTPError, RuntimeError) as error:
        # Where a client of Prefect begins, it raises a RuntimeError because of the error of HTTP.
        cause = error if isinstance(error, httpx.HTTPError) else error.__cause__
        if not isinstance(cause, httpx.HTTPError):
            raise
        raise ApiLost(
            f"Prefect's API at {url} failed: {cause or type(cause).__name__}",
            f"check that it runs and has this Prefect release, then {GO_ON}",
        ) from error
