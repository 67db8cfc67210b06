"""Train with several supervised ranks, on this machine or on others."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.training.config import TrainConfig
from shardmill.training.ranks import launchers
from shardmill.training.ranks.devices import DeviceRequest, RankCount, Slot, visible_gpus
from shardmill.training.ranks.supervision.silence import LEAST_SECONDS, Limits
from shardmill.training.ranks.supervision.supervisor import RankHosts, RankPlan, Supervisor


def train_with_supervised_ranks(
    config: TrainConfig,
    version: DatasetVersion,
    root: str | Path,
    run_dir: Path,
    more_parts: Callable[[int], int | None],
) -> dict[str, Any]:
    """Train with ``ranks.workers`` processes. The caller holds the lock on ``run_dir``.

    Args:
        config: the configuration.
        version: the dataset version.
        root: the folder of the datasets.
        run_dir: the folder of the run.
        more_parts: see ``RankPlan``.

    Returns:
        The result of the run; see ``Supervisor.run``.

    Raises:
        ShardmillError: see ``Supervisor.run``.
    """
    with _hosts(config) as hosts:
        plan = RankPlan(
            command=rank_command(config, version, root, run_dir),
            log_folder=run_dir / "logs" / "ranks",
            limits=limits_of(config, root),
            max_restarts=config.ranks.max_restarts,
            preemption_signals=preemption_signals(config),
            hosts=hosts,
            more_parts=more_parts,
        )
        return Supervisor(plan).run()


def with_a_rank_for_each_device(config: TrainConfig) -> TrainConfig:
    """Return ``config`` with ``ranks.workers`` for all devices of ``run.devices``, unless it is set.

    A process of PyTorch drives one device. One of TensorFlow drives all: ``config`` stays as it is.

    Raises:
        EnvironmentFault: the driver of the GPUs does not answer.
    """
    if config.run.framework != "torch" or config.ranks.workers is not None:
        return config
    request = DeviceRequest.parse(config.run.devices)
    if request.on_cpu:
        count = request.least
    else:
        present = len(visible_gpus())
        count = max(min(request.most or present, present), request.least)
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


def rank_command(config: TrainConfig, version: DatasetVersion, root: str | Path, run_dir: Path) -> list[str]:
    """Return the command of a rank. The parent sets the environment, which names the device of each rank."""
    return [
        *python_module("shardmill.training.train_rank", version.ref),
        *("--root", str(root), "--run-dir", str(run_dir)),
        *config_arguments(of_a_rank(config).model_dump_json()),
    ]


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


def _hosts(config: TrainConfig) -> AbstractContextManager[RankHosts]:
    name = config.ranks.launcher
    return launchers.open_hosts(
        name,
        RankCount.parse(config.ranks.workers or "1"),
        config.run.devices,
        getattr(config.ranks, name, None),
    )
