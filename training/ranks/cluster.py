"""The ranks of a run and their addresses, as whoever starts processes gives them. No TensorFlow.

* ``TF_CONFIG``, TensorFlow's own form: JSON with the addresses of all workers and the task of this one.
* ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, as torchrun, Kubernetes operators and Slurm
  scripts set them. Rank 0 collects the addresses of all ranks there
  (``shardmill.training.ranks.rendezvous``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from shardmill.infra.errors import UsageError
from shardmill.infra.processes.process import num_cpus
from shardmill.infra.strict_json import dump_json

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


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
