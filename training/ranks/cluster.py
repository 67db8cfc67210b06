"""The ranks of a run and their addresses, as whoever starts processes gives them.

* ``TF_CONFIG``, TensorFlow's own form: JSON with the addresses of all workers and the task of this one.
* ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, as torchrun, Kubernetes operators and Slurm
  scripts set them. Then the ranks meet there by plain TCP: each sends a line
  ``{"rank": r, "address": "host:port"}`` to rank 0, which answers each with the list of addresses when it has
  heard from all. A rank that connects again replaces its line.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from shardmill.infra.errors import EnvironmentFault, UsageError
from shardmill.infra.processes.ports import free_port
from shardmill.infra.processes.process import num_cpus
from shardmill.infra.strict_json import dump_json

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_RETRY_SECONDS = 0.2
_LINE_SECONDS = 10.0
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Cluster:
    """The place of this process among the ranks.

    Attributes:
        addresses: ``host:port`` of each rank's TensorFlow server, by rank.
        rank: the number of this process.
    """

    addresses: tuple[str, ...]
    rank: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < len(self.addresses):
            raise UsageError(f"rank {self.rank} of {len(self.addresses)}: ranks count from 0")

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return len(self.addresses)

    @property
    def is_on_one_machine(self) -> bool:
        """Whether all ranks have the address of one machine."""
        return len({address.rpartition(":")[0] for address in self.addresses}) == 1

    @property
    def place_on_machine(self) -> tuple[int, int]:
        """The number of this rank among those with its host in their address, and how many those are."""
        hosts = [address.rpartition(":")[0] for address in self.addresses]
        same = [rank for rank, host in enumerate(hosts) if host == hosts[self.rank]]
        return same.index(self.rank), len(same)

    @property
    def threads(self) -> int:
        """The processors of this machine for this rank."""
        return max(1, num_cpus() // self.place_on_machine[1])

    def to_tf_config(self) -> str:
        """Return the value of ``TF_CONFIG`` for this rank."""
        task = {"type": "worker", "index": self.rank}
        return dump_json({"cluster": {"worker": list(self.addresses)}, "task": task})


@dataclass(frozen=True, slots=True)
class Meeting:
    """A rank that an outer system started without telling it the addresses of the others.

    Attributes:
        rank: the number of this process.
        num_ranks: the number of ranks.
        host: the address of rank 0.
        port: the port at which rank 0 collects the addresses.
    """

    rank: int
    num_ranks: int
    host: str
    port: int


def cluster_from_environment(environment: Mapping[str, str] = os.environ) -> Cluster | Meeting | None:
    """Return the place of this process among the ranks; None: it trains alone.

    Raises:
        UsageError: the variables contradict each other or are incomplete.
    """
    if environment.get("TF_CONFIG"):
        return _from_tf_config(environment["TF_CONFIG"])
    given = [name for name in _TORCHRUN if environment.get(name)]
    if "WORLD_SIZE" not in given or "RANK" not in given:
        return None
    rank, num_ranks = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    if num_ranks == 1:
        return None
    if not 0 <= rank < num_ranks:
        raise UsageError(f"RANK={rank} with WORLD_SIZE={num_ranks}: ranks count from 0")
    if missing := [name for name in _TORCHRUN if name not in given]:
        raise UsageError(
            f"RANK and WORLD_SIZE are set, but not {' and '.join(missing)}",
            "set the address and a free port of rank 0, or unset RANK and WORLD_SIZE to train alone",
        )
    port = _number(environment, "MASTER_PORT")
    # torchrun's agent listens on the port itself; the next one is ours then.
    port += environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return Meeting(rank, num_ranks, environment["MASTER_ADDR"], port)


def _from_tf_config(text: str) -> Cluster | None:
    remedy = (
        'it looks like {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
    )
    try:
        value = json.loads(text)
        jobs = value.get("cluster", {})
        kind, index = value.get("task", {}).get("type"), value.get("task", {}).get("index")
    except (ValueError, AttributeError) as error:
        raise UsageError(f"TF_CONFIG is not what TensorFlow expects: {error}", remedy) from error
    if not jobs:
        return None
    if set(jobs) - {"chief", "worker"} or kind not in jobs:
        raise UsageError(
            f"TF_CONFIG has the jobs {', '.join(jobs)} and the task {kind}; only chief and worker train",
            remedy,
        )
    addresses = tuple(str(address) for job in ("chief", "worker") for address in jobs.get(job, []))
    rank = int(index) + (len(jobs["chief"]) if kind == "worker" and "chief" in jobs else 0)
    return Cluster(addresses, rank) if len(addresses) > 1 else None


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError as error:
        raise UsageError(f"{name}={environment[name]!r} is not a number") from error


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
