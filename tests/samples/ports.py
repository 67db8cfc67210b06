"""Free ports of this machine."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
