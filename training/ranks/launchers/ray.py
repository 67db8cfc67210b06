"""The launcher of a Ray cluster: a bundle of a placement group for each rank. Loaded only when chosen.

Ray places processes and says which machines are there. All else stays with our own parent, as on one machine:
heartbeats, checkpoints, restarts with fewer or more ranks. Machines share the folders of datasets and runs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from typing_extensions import override

from shardmill.infra import progress as events
from shardmill.infra.errors import ConfigError, EnvironmentFault, RankLost
from shardmill.infra.readable import counted
from shardmill.training.ranks.cluster import Cluster
from shardmill.training.ranks.devices import DeviceRequest, RankCount, Slot
from shardmill.training.ranks.launchers.ray_agent import ANSWER_SECONDS, Look, RankAgent
from shardmill.training.ranks.launchers.settings import RaySettings
from shardmill.training.ranks.supervision.running_rank import RankState, RunningRank, relay
from shardmill.training.ranks.supervision.supervisor import RankHosts, RankPlan

_LOOK_SECONDS = 30.0
_PLACE_SECONDS = 10.0
_PROBE_SECONDS = 1.0
_START_SECONDS = 120.0
_ASK_SECONDS = 0.1
# Looks of very many ranks together take no more than a part of the parent's time.
_SECONDS_A_RANK = 0.002
_CLOSE_SECONDS = 10.0
_LOST_STATUS = -int(signal.SIGKILL)
_LINE_CHARACTERS = 300


@contextmanager
def open_hosts(count: RankCount, devices: str, options: RaySettings) -> Iterator[RankHosts]:
    """Connect to the Ray cluster for the ranks of one training; see ``RayHosts``.

    Raises:
        ConfigError: ``run.devices`` names devices of one machine.
        EnvironmentFault: the cluster cannot be reached.
    """
    request = DeviceRequest.parse(devices)
    if devices != "all" and not request.on_cpu:
        raise ConfigError(
            f"run.devices = {devices!r} is about one machine; ranks.launcher = 'ray' gives each rank one GPU "
            "of the cluster",
            "set it to all, or to cpu:1 for ranks on CPUs; ranks.workers is their number",
        )
    with _connected(options.address):
        hosts = RayHosts(count, options, on_cpu=request.on_cpu)
        try:
            yield hosts
        finally:
            hosts.release()


@contextmanager
def _connected(address: str) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray takes over SIGTERM. Whoever waits for it here shall get it.
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        raise EnvironmentFault(
            f"no Ray cluster answers at ranks.ray.address = {address!r}: {_on_a_line(error)}",
            "start one (ray start --head), or set ranks.ray.address to HOST:PORT of its head",
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


class RayHosts(RankHosts):
    """The machines of a Ray cluster that can run ranks; machines may join and leave."""

    def __init__(
        self, count: RankCount, settings: RaySettings, *, on_cpu: bool, look_seconds: float = _LOOK_SECONDS
    ) -> None:
        """Create the places for the ranks of a training. This process is connected to the cluster."""
        self._count, self._settings, self._look_seconds = count, settings, look_seconds
        on_gpus = not on_cpu and any(node.get("GPU", 0) >= 1 for node in _resources())
        self._bundle: dict[str, float] = {"CPU": settings.cpus_per_rank, **({"GPU": 1} if on_gpus else {})}
        self._on_gpus = on_gpus
        self._group: PlacementGroup | None = None
        self._looked_at = time.monotonic()

    @override
    def choose(self, is_wanted: Callable[[], bool] = lambda: True) -> list[Slot]:
        self.release()
        deadline = time.monotonic() + self._settings.wait_seconds
        told = False
        while is_wanted():
            number = min(self._count.most, self._possible())
            while number >= self._count.least and is_wanted():
                if (group := self._reserved(number, _PLACE_SECONDS)) is not None:
                    self._group = group
                    return [Slot(f"bundle {index}") for index in range(number)]
                number = min(number - 1, _fits(ray.available_resources(), self._bundle))
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"the Ray cluster has no room for {counted(self._count.least, 'rank')} of "
                    f"{_told(self._bundle)}; it has {counted(len(_resources()), 'machine')} with "
                    f"{_told(ray.cluster_resources())}",
                    "add machines, lower ranks.workers or ranks.ray.cpus_per_rank, or wait for other jobs of "
                    "the cluster; then run the same command again",
                )
            if not told:
                events.log(f"waiting for a Ray cluster with room for {counted(self._count.least, 'rank')}")
                told = True
            time.sleep(_PROBE_SECONDS)
        return []

    @override
    def has_more_than(self, used: Sequence[Slot]) -> bool:
        if len(used) >= self._count.most or time.monotonic() - self._looked_at < self._look_seconds:
            return False
        self._looked_at = time.monotonic()
        if self._possible() <= len(used):
            return False
        group = self._reserved(1, _PROBE_SECONDS)
        if group is not None:
            remove_placement_group(group)
        return group is not None

    @override
    def note_attempt(self, failed_start: Slot | None) -> None:
        """Do nothing: the next places are on machines that Ray knows to be alive."""

    @override
    def start(self, plan: RankPlan, slots: Sequence[Slot], scratch: Path) -> Iterator[RunningRank]:
        plan.log_folder.mkdir(parents=True, exist_ok=True)
        agents = [self._agent(index) for index in range(len(slots))]
        try:
            addresses = tuple(_answers([agent.address.remote() for agent in agents]))
            machines = [address.rpartition(":")[0] for address in addresses]
            seen = _answers([agent.sees.remote(str(plan.log_folder)) for agent in agents])
            if not all(seen):
                blind = machines[seen.index(False)]
                raise ConfigError(
                    f"machine {blind} of the Ray cluster does not see {plan.log_folder}",
                    "put --runs on storage that all machines have under the same path",
                )
            for rank, agent in enumerate(agents):
                variables = {
                    **self._environment(),
                    "TF_CONFIG": Cluster(addresses, rank).to_tf_config() if len(slots) > 1 else "",
                }
                agent.start.remote(rank, list(plan.command), variables)
                yield _RemoteRank(rank, len(slots), agent, machines[rank], plan.log_path(rank))
        except RayError as error:
            raise RankLost(f"a machine of the Ray cluster was lost: {_on_a_line(error)}") from error

    def release(self) -> None:
        """Release the places."""
        if self._group is not None:
            remove_placement_group(self._group)  # also ends processes in the group
            self._group = None

    def _agent(self, index: int) -> Any:
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index)
        # A rank that has ended is not started again by itself: all are, by the parent.
        return (
            ray.remote(RankAgent)
            .options(
                num_cpus=self._bundle["CPU"],
                num_gpus=self._bundle.get("GPU", 0),
                scheduling_strategy=strategy,
                max_restarts=0,
                max_task_retries=0,
            )
            .remote()
        )

    def _environment(self) -> dict[str, str]:
        """Return the variables of a rank. Ray itself lets it see its GPU."""
        if self._on_gpus:
            return {}
        return {
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_NUM_INTRAOP_THREADS": str(self._settings.cpus_per_rank),
        }

    def _possible(self) -> int:
        """Return the number of ranks that the living machines have room for, if nothing else ran."""
        return sum(_fits(node, self._bundle) for node in _resources())

    def _reserved(self, number: int, seconds: float) -> PlacementGroup | None:
        """Reserve bundles, or return None if that takes longer."""
        group = placement_group([self._bundle] * number, strategy=self._settings.placement)
        try:
            if group.wait(seconds):
                return group
        except RayError:
            pass
        remove_placement_group(group)
        return None


def _resources() -> list[Mapping[str, float]]:
    """Return the resources of each machine that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _fits(resources: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    return min(int(resources.get(name, 0) // amount) for name, amount in bundle.items())


def _told(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU"))


def _answers(asked: list[Any]) -> list[Any]:
    found: list[Any] = ray.get(asked, timeout=_START_SECONDS)
    return found


def _on_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_LINE_CHARACTERS]


class _RemoteRank(RunningRank):
    """A rank on a machine of the cluster. Asks its agent without waiting for the answer."""

    def __init__(self, rank: int, num_ranks: int, agent: Any, machine: str, log_path: Path) -> None:
        """Watch the rank that ``agent`` runs on ``machine``."""
        super().__init__(rank)
        self._agent, self._machine, self._log_path = agent, machine, log_path
        self._every = max(_ASK_SECONDS, _SECONDS_A_RANK * num_ranks)
        self._asked: Any = None
        self._asked_at = self._answered_at = time.monotonic()
        self._answer = RankState()

    @override
    def _seen(self) -> RankState:
        self._ask()
        answer, since = self._answer, time.monotonic() - self._answered_at
        stopped_seconds = answer.stopped_seconds and answer.stopped_seconds + since
        return replace(answer, silent_seconds=answer.silent_seconds + since, stopped_seconds=stopped_seconds)

    def _ask(self) -> None:
        """Take the answer to the last request if it has come, and send the next one if it is time."""
        now = time.monotonic()
        if self._asked is None:
            if now - self._asked_at >= self._every:
                self._asked, self._asked_at = self._agent.look.remote(), now
            return
        ready, _ = ray.wait([self._asked], timeout=0)
        if not ready:
            if now - self._answered_at > ANSWER_SECONDS:
                self._lose(f": its machine {self._machine} has not answered for {ANSWER_SECONDS:.0f} s")
            return
        try:
            self._take(ray.get(self._asked))
        except RayError as error:
            self._lose(f" with its machine {self._machine} or its Ray worker there: {_on_a_line(error)}")
        self._asked = None

    def _lose(self, how: str) -> None:
        self._answer = replace(self._answer, status=_LOST_STATUS, lost=f"is lost{how}")

    def _take(self, look: Look) -> None:
        self._answered_at = time.monotonic()
        if look.printed:
            with self._log_path.open("ab") as log:
                log.write(look.printed)
        for event in look.events:
            relay(self.rank, event)
        self._answer = look.state

    @override
    def signal(self, number: signal.Signals) -> None:
        if self.look().status is None:
            self._agent.signal.remote(int(number))

    @override
    def close(self) -> None:
        if self.state.lost is None:
            with suppress(RayError):
                ray.get(self._agent.close.remote(), timeout=_CLOSE_SECONDS)
        ray.kill(self._agent)
