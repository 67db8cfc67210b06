"""The processes of a training with PyTorch: how many it needs, and their environment. Imports no PyTorch."""

from __future__ import annotations

import os

from shardmill.training.config import TrainConfig
from shardmill.training.ranks.devices import DeviceRequest, visible_gpus


def with_a_rank_for_each_device(config: TrainConfig) -> TrainConfig:
    """Return ``config`` with ``ranks.workers`` for all devices of ``run.devices``, unless it is set.

    Raises:
        EnvironmentFault: the driver of the GPUs does not answer.
    """
    if config.ranks.workers is not None:
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


def set_environment(config: TrainConfig) -> None:
    """Set the environment variables that PyTorch reads when it is imported, unless they are set."""
    # Its threads would otherwise wait in a loop, and take the cores from the threads that decode, and from
    # other processes: on two busy cores a step then takes five times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if config.run.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
