"""Check the addresses on which the servers of `shardmill up` listen."""

from __future__ import annotations

import errno
import socket

from shardmill.flows.home import LOOPBACK
from shardmill.infra.errors import EnvironmentFault, UsageError


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
        try_to_listen(host, port)
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


def try_to_listen(host: str, port: int) -> None:
    """Raise OSError when a server could not listen on this address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()


def _check_password(host: str, auth: str | None) -> None:
    if auth is None and host not in LOOPBACK:
        raise UsageError(
            f"--host {host} admits other machines; whoever reaches the server can run commands",
            "set a password: --auth user:password (or the variable PREFECT_SERVER_API_AUTH_STRING)",
        )
    if auth is not None and not all(auth.partition(":")):
        raise UsageError("--auth: not a user and a password", "for example --auth shardmill:LONG-PASSWORD")
