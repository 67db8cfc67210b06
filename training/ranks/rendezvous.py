"""Tell every rank the addresses of all: rank 0 listens, the others say theirs. Plain TCP, no TensorFlow.

Each rank sends a line ``{"rank": r, "address": "host:port"}``. When rank 0 has heard from all, it answers
each with the list of addresses. A rank that connects again replaces its line.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.ports import free_port
from shardmill.infra.strict_json import dump_json
from shardmill.training.ranks.cluster import Cluster, Meeting

_RETRY_SECONDS = 0.2
_LINE_SECONDS = 10.0
_LONGEST_LINE = 1 << 20


def meet(meeting: Meeting, timeout_seconds: float) -> Cluster:
    """Exchange addresses with the other ranks.

    Raises:
        EnvironmentFault: not all ranks came in time; rank 0 names those that are missing.
    """
    deadline = time.monotonic() + timeout_seconds
    addresses = _collect(meeting, deadline) if meeting.rank == 0 else _ask(meeting, deadline)
    return Cluster(tuple(addresses), meeting.rank)


def _collect(meeting: Meeting, deadline: float) -> list[str]:
    addresses = {0: f"{meeting.host}:{free_port()}"}
    connections: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as opened:
        try:
            server = opened.enter_context(socket.create_server(("", meeting.port), backlog=meeting.num_ranks))
        except OSError as error:
            raise EnvironmentFault(
                f"rank 0 cannot listen on MASTER_PORT {meeting.port}: {error}", "choose a free port"
            ) from error
        while len(addresses) < meeting.num_ranks:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(meeting.num_ranks)) - set(addresses))
                raise EnvironmentFault(
                    f"ranks {', '.join(map(str, missing))} of {meeting.num_ranks} did not start in time",
                    "look for their errors, and check that they reach MASTER_ADDR:MASTER_PORT",
                ) from None
            opened.enter_context(connection)
            if (said := _hello(connection)) is not None and 0 < said[0] < meeting.num_ranks:
                connections[said[0]], addresses[said[0]] = connection, said[1]
        ordered = [addresses[rank] for rank in range(meeting.num_ranks)]
        for connection in connections.values():
            # A rank that has gone meanwhile is missed by TensorFlow's own start.
            with contextlib.suppress(OSError):
                connection.sendall(dump_json(ordered).encode() + b"\n")
    return ordered


def _hello(connection: socket.socket) -> tuple[int, str] | None:
    """Read what a rank says of itself; None if it is no rank of ours."""
    connection.settimeout(_LINE_SECONDS)
    try:
        said = json.loads(connection.makefile("rb").readline(_LONGEST_LINE))
        return int(said["rank"]), str(said["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _ask(meeting: Meeting, deadline: float) -> list[str]:
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((meeting.host, meeting.port), timeout=_LINE_SECONDS) as connection:
                own = f"{connection.getsockname()[0]}:{free_port()}"
                connection.sendall(dump_json({"rank": meeting.rank, "address": own}).encode() + b"\n")
                connection.settimeout(max(deadline - time.monotonic(), 0.01))
                line = connection.makefile("rb").readline(_LONGEST_LINE)
                if line:
                    return [str(address) for address in json.loads(line)]
        except (OSError, ValueError) as error:
            last = error
        time.sleep(_RETRY_SECONDS)
    raise EnvironmentFault(
        f"rank 0 did not answer at {meeting.host}:{meeting.port}: {last or 'it closed the connection'}",
        "check MASTER_ADDR and MASTER_PORT, and the log of rank 0",
    )
