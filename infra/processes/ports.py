"""TCP ports of this machine that nothing listens on, and HTTP requests, without a proxy on this machine."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import urllib.request
from collections.abc import Collection
from urllib.parse import urlsplit

from shardmill.infra.errors import EnvironmentFault

_ATTEMPTS = 50
_ALL_ADDRESSES = ""


def free_port(*hosts: str, other_than: Collection[int] = ()) -> int:
    """Return a port that is free now on each of some addresses of this machine; by default on all addresses.

    Args:
        hosts: the addresses.
        other_than: ports that are meant for something that does not listen yet.

    Raises:
        EnvironmentFault: none was found, or an address is not one of this machine.
    """
    hosts = hosts or (_ALL_ADDRESSES,)
    for _ in range(_ATTEMPTS):
        with contextlib.ExitStack() as held:
            port = 0
            try:
                for host in hosts:
                    listener = held.enter_context(socket.socket())
                    listener.bind((host, port))
                    port = listener.getsockname()[1]
            except OSError:
                continue
            if port not in other_than:
                return port
    raise EnvironmentFault(f"no port is free on all of {', '.join(hosts)}", "name one with the port options")


def free_ports(count: int) -> list[int]:
    """Return ports that are free now on all addresses, none of them twice.

    Raises:
        EnvironmentFault: they were not found.
    """
    ports: list[int] = []
    while len(ports) < count:
        ports.append(free_port(other_than=ports))
    return ports


def is_loopback(host: str) -> bool:
    """Tell whether a name or address is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def open_url(request: urllib.request.Request, timeout_seconds: float) -> http.client.HTTPResponse:
    """Make a request. Proxies of the environment are for other machines only: none knows loopback.

    Raises:
        OSError: the server cannot be reached, or answers with an error (``HTTPError``).
    """
    host = urlsplit(request.full_url).hostname or ""
    proxies = urllib.request.ProxyHandler({} if is_loopback(host) else None)
    response: http.client.HTTPResponse = urllib.request.build_opener(proxies).open(
        request, timeout=timeout_seconds
    )
    return response
