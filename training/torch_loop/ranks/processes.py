"""How many processes a training with PyTorch needs: one drives one device. Imports no PyTorch."""

from __future__ import annotations

from training.config import TrainConfig
from training.ranks.devices import DeviceRequest, visible_gpus


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
