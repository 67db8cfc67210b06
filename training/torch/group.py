"""Join the ranks of a run over ``torch.distributed``, and exchange values between them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.infra.processes.process import num_cpus
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.cluster import Cluster, Meeting
from shardmill.training.ranks.devices import DeviceRequest
from shardmill.training.ranks.peers import Peers

Place = Cluster | Meeting | None


def choose_device(config: TrainConfig, place: Place) -> tuple[Any, int]:
    """Choose the device of this process, and let PyTorch use its part of the CPUs.

    Returns:
        A ``torch.device``, and the number of CPUs of this host for this rank.

    Raises:
        ConfigError: ``run.devices`` asks for GPUs that are not there.
    """
    local_rank, local_ranks = _on_this_host(place)
    threads = max(1, num_cpus() // local_ranks)
    torch.set_num_threads(threads)
    if DeviceRequest.parse(config.run.devices).on_cpu or not torch.cuda.is_available():
        _check_cpu(config)
        return torch.device("cpu"), threads
    # A parent lets each of its ranks see one GPU only.
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if (limit := config.run.gpu_memory_limit_bytes) is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)
    return device, threads


def join(config: TrainConfig, place: Place, device: Any, threads: int) -> TorchRanks:
    """Find the other ranks. It waits for them.

    Raises:
        EnvironmentFault: they did not come in time.
    """
    if place is None:
        return TorchRanks(0, 1, device, threads)
    settings = config.ranks
    # NCCL moves gradients between GPUs. A ring over the network in host memory is what gloo does.
    backend = "nccl" if device.type == "cuda" and settings.collectives != "ring" else "gloo"
    # torchrun's agent keeps the addresses itself; it says where in its environment variables.
    where = "env://" if isinstance(place, Meeting) else f"tcp://{place.addresses[0]}"
    try:
        dist.init_process_group(
            backend,
            init_method=where,
            rank=place.rank,
            world_size=place.num_ranks,
            timeout=timedelta(seconds=max(settings.start_timeout_seconds, settings.peer_timeout_seconds)),
        )
    except (RuntimeError, ValueError) as error:
        raise EnvironmentFault(
            f"rank {place.rank} of {place.num_ranks} did not find the others: {error}",
            "look for the errors of the other ranks, and check the addresses and ports",
        ) from error
    return TorchRanks(place.rank, place.num_ranks, device, threads)


class TorchRanks(Peers):
    """The ranks that train together; a single one without a process group."""

    def __init__(self, rank: int, num_ranks: int, device: Any, threads: int = 1) -> None:
        super().__init__(rank, num_ranks, threads)
        self._device = device

    def sum_over(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of an array of numbers over several ranks."""
        tensor = torch.from_numpy(array).to(self._device)
        dist.all_reduce(tensor)
        return np.asarray(tensor.cpu().numpy())

    def variables_of_first(self, variables: Sequence[Any]) -> None:
        """Give all arrays the values that rank 0 has."""
        if self.num_ranks == 1:
            return
        for variable in variables:
            values = variable.numpy()
            # Backends do not send booleans.
            kind = np.uint8 if values.dtype == np.bool_ else values.dtype
            tensor = torch.from_numpy(values.astype(kind)).to(self._device)
            dist.broadcast(tensor, 0)
            variable.assign(tensor.cpu().numpy().astype(values.dtype))


def _on_this_host(place: Place) -> tuple[int, int]:
    """Return number and count of this rank among those of this host."""
    if place is None:
        return 0, 1
    if isinstance(place, Meeting):
        return int(os.environ.get("LOCAL_RANK", place.rank)), int(
            os.environ.get("LOCAL_WORLD_SIZE", place.num_ranks)
        )
    return place.place_on_machine


def _check_cpu(config: TrainConfig) -> None:
    request = DeviceRequest.parse(config.run.devices)
    if not request.on_cpu and config.run.devices not in ("all", "one"):
        raise ConfigError(
            f"run.devices = {config.run.devices!r}, but PyTorch sees no GPU of this machine "
            f"({socket.gethostname()})",
            "set it to all, or install a build of PyTorch for this GPU",
        )
    if config.run.mixed_precision == "float16":
        raise ConfigError(
            "run.mixed_precision = 'float16' needs a GPU with run.framework = 'torch'",
            "set it to bfloat16, or to off",
        )
    if config.ranks.collectives == "nccl":
        raise ConfigError("ranks.collectives = 'nccl' needs NVIDIA GPUs", "set it to auto or ring")
