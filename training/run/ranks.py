"""Train with several ranks: as the parent of all, or as the parent of one that an outer system started.

TensorFlow waits without limit for a rank that never comes, and ignores SIGTERM meanwhile; its process may
abort when a rank is lost; and a collective over a link that is gone may hang. So the process that trains is
always a child, with heartbeats and limits. A parent of all ranks starts them again (``Supervisor``). A parent
of one ends, with a status that tells the outer system whether to start all ranks again
(``shardmill.training.ranks.launchers.outer``).
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import GO_ON, EnvironmentFault, OutOfMemory, RankLost, ShardmillError
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.training.config import TrainConfig
from shardmill.training.ranks import launchers
from shardmill.training.ranks.cluster import Cluster, Meeting
from shardmill.training.ranks.devices import DeviceRequest, RankCount, Slot, visible_gpus
from shardmill.training.ranks.supervision.attempt import Attempt
from shardmill.training.ranks.supervision.outcomes import Failed, Finished, stop_requests
from shardmill.training.ranks.supervision.running_rank import RankProcess, RankStart
from shardmill.training.ranks.supervision.silence import LEAST_SECONDS, Limits
from shardmill.training.ranks.supervision.supervisor import RankHosts, RankPlan, Supervisor
from shardmill.training.run.memory.fallback import settle_parts_of_ranks


def train_with_supervised_ranks(
    config: TrainConfig, version: DatasetVersion, root: str | Path, run_dir: Path
) -> dict[str, Any]:
    """Train with ``ranks.workers`` processes. The caller holds the lock on ``run_dir``.

    Args:
        config: the configuration.
        version: the dataset version.
        root: the folder of the datasets.
        run_dir: the folder of the run.

    Returns:
        The result of the run; see ``Supervisor.run``.

    Raises:
        ShardmillError: see ``Supervisor.run``.
    """
    with _hosts(config) as hosts:
        plan = RankPlan(
            command=_rank_command(config, version, root, run_dir),
            log_folder=run_dir / "logs" / "ranks",
            limits=limits_of(config, root),
            max_restarts=config.ranks.max_restarts,
            preemption_signals=preemption_signals(config),
            hosts=hosts,
            more_parts=partial(settle_parts_of_ranks, config, run_dir),
        )
        return Supervisor(plan).run()


def train_as_outer_rank(
    config: TrainConfig, version: DatasetVersion, root: str | Path, run_dir: Path, place: Cluster | Meeting
) -> dict[str, Any]:
    """Train in a child process that is one of several ranks.

    The caller of rank 0 holds the lock on ``run_dir``.

    Args:
        config: the configuration.
        version: the dataset version.
        root: the folder of the datasets.
        run_dir: the folder of the run.
        place: the place of this process among the ranks.

    Returns:
        The result of the run if this is rank 0; other ranks return a part of it.

    Raises:
        RankLost: another rank ended or does not answer.
        EnvironmentFault: the process that trains died, hung, or did not begin in time.
        Preempted, Cancelled: stopped on request.
        ShardmillError: the process reported an error that starting again does not repair.
    """
    # The rank may wait for ranks that this process does not watch.
    limits = replace(limits_of(config, root), least=config.ranks.peer_timeout_seconds, sees_all=False)
    with (
        tempfile.TemporaryDirectory(prefix="shardmill-rank-") as scratch,
        stop_requests(preemption_signals(config)) as stop,
        Attempt(limits) as attempt,
    ):
        variables = {**_environment(config, place), "TMPDIR": scratch}
        command = _rank_command(config, version, root, run_dir)
        start = RankStart(place.rank, command, variables, None, Path(scratch) / "heartbeat")
        attempt.start([RankProcess(start)])
        outcome = attempt.wait(stop, lambda: False)
    if isinstance(outcome, Finished):
        return {**outcome.result, "peak_rss_bytes": outcome.peak_rss_bytes}
    if isinstance(outcome, Failed):
        failure = replace(outcome, num_ranks=place.num_ranks)
        if not stop.asked:
            raise _error_of(failure, config, run_dir) from failure.error
        events.log(f"{failure}, while the run stopped", level="warning")
    if not stop.asked:  # this process was not asked, but another rank
        stop.ask(preempted=True)
    raise stop.error()


def _environment(config: TrainConfig, place: Cluster | Meeting) -> dict[str, str]:
    """Return the environment variables that name the other ranks and the devices of the process."""
    if isinstance(place, Meeting):  # PyTorch reads the variables of the outer system itself
        return {}
    variables = {"TF_CONFIG": place.to_tf_config()}
    if config.run.framework == "tensorflow" and (slot := _own_slot(config)) is not None:
        variables |= slot.environment(int(os.environ["LOCAL_WORLD_SIZE"]))
    return variables


def _own_slot(config: TrainConfig) -> Slot | None:
    """Return the device of this rank among the ranks of its machine, as torchrun numbers them; None: all."""
    number, ranks = os.environ.get("LOCAL_RANK", ""), os.environ.get("LOCAL_WORLD_SIZE", "")
    if not (number.isdecimal() and ranks.isdecimal() and int(ranks) > 1):
        return None
    gpus = [] if DeviceRequest.parse(config.run.devices).on_cpu else visible_gpus()
    if not gpus:
        return Slot(f"CPU {number}")
    return Slot(f"GPU {number}", gpus[int(number)]) if len(gpus) >= int(ranks) else None


def _error_of(failure: Failed, config: TrainConfig, run_dir: Path) -> ShardmillError:
    """Return the error that ends the parent of one rank. Rank 0 settles more parts for the next start."""
    error = failure.error
    if isinstance(error, OutOfMemory) and failure.rank == 0:
        number = settle_parts_of_ranks(config, run_dir, failure.num_ranks)
        if number is None:
            return error
        return EnvironmentFault(
            f"{error.message}; the next start takes run.accumulate_steps = {number}", GO_ON
        )
    if error is not None:
        return error
    kind = RankLost if failure.reason == "silent" else EnvironmentFault
    return kind(str(failure), f"all ranks must be started again; {GO_ON}")


def with_a_rank_for_each_device(config: TrainConfig) -> TrainConfig:
    """Return ``config`` with ``ranks.workers`` for all devices of ``run.devices``, unless it is set.

    A process of PyTorch drives one device. One of TensorFlow drives all: ``config`` stays as it is.

    Raises:
        EnvironmentFault: the driver of the GPUs does not answer.
    """
    if config.run.framework != "torch" or config.ranks.workers is not None:
        return config
    request = DeviceRequest.parse(config.run.devices)
    count = request.least
    if not request.on_cpu:
        present = len(visible_gpus())
        count = max(min(request.most or present, present), count)
    if count == 1:
        return config
    ranks = config.ranks.model_copy(update={"workers": str(count)})
    return config.model_copy(update={"ranks": ranks})


def limits_of(config: TrainConfig, root: str | Path) -> Limits:
    """Return the times after which the ranks of this machine count as hung.

    With several machines or an object store, the least time is ``ranks.peer_timeout_seconds``, so that a
    short delay of the network does not count as a hang.
    """
    settings = config.ranks
    is_local = settings.launcher == "local" and "://" not in str(root)
    return Limits(
        settings.start_timeout_seconds,
        settings.step_timeout_seconds,
        settings.stop_timeout_seconds,
        least=LEAST_SECONDS if is_local else settings.peer_timeout_seconds,
    )


def preemption_signals(config: TrainConfig) -> tuple[int, ...]:
    """Return the signals that ask a run to save and to end."""
    return (signal.SIGTERM, signal.Signals[config.run.preemption_signal])


def of_a_rank(config: TrainConfig) -> TrainConfig:
    """Return the configuration of one rank, which sees one device."""
    return config.model_copy(update={"run": config.run.model_copy(update={"devices": "one"})})


def first_places(config: TrainConfig) -> list[Slot]:
    """Return the places that the ranks would have if the run began now.

    Raises:
        ConfigError: there are fewer devices than ranks.
    """
    with _hosts(config) as hosts:
        return hosts.choose()


def _rank_command(config: TrainConfig, version: DatasetVersion, root: str | Path, run_dir: Path) -> list[str]:
    """Return the command of a rank. The parent sets the environment, which names the device of each rank."""
    return [
        *python_module("shardmill.training.train_rank", version.ref),
        *("--root", str(root), "--run-dir", str(run_dir)),
        *config_arguments(of_a_rank(config).model_dump_json()),
    ]


def _hosts(config: TrainConfig) -> AbstractContextManager[RankHosts]:
    name, count = config.ranks.launcher, RankCount.parse(config.ranks.workers or "1")
    return launchers.open_hosts(name, count, config.run.devices, getattr(config.ranks, name, None))
