"""TCP ports of this machine that nothing listens on."""

from __future__ import annotations

import contextlib
import socket

from shardmill.infra.errors import EnvironmentFault

_ATTEMPTS = 50
_ALL_ADDRESSES = ""


def free_port(*hosts: str) -> int:
    """Return a port that is free now on each of some addresses of this machine; by default on all addresses.

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
            return port
    raise EnvironmentFault(f"no port is free on all of {', '.join(hosts)}", "name one with the port options")
