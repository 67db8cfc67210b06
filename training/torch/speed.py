"""Measure the computing speed of each rank; see ``shardmill.training.tensorflow.sharing.speed``."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace

import torch

from shardmill.training.config import TrainConfig
from shardmill.training.run.sharing.division import MeasuredRank
from shardmill.training.run.sharing.timing import seconds_of_step
from shardmill.training.torch.models import build_model
from shardmill.training.torch.models.layers import freeze_modules, set_training
from shardmill.training.torch.parts import TrainingParts
from shardmill.training.torch.ranks.group import RankDevice
from shardmill.training.torch.step import pixels


def measured_rank(parts: TrainingParts, config: TrainConfig, own: RankDevice) -> MeasuredRank:
    """Describe this rank, whose speed is measured on a copy of the model that exchanges nothing."""

    def seconds_per_example(rows: int) -> list[float]:
        together = max(1, rows // config.run.accumulate_steps)
        seconds = seconds_of_step(_local_step(parts, config, together), parts.ranks)
        return [float(each) for each in parts.ranks.all_values(seconds / together)]

    place = f"{socket.gethostname()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".strip()
    return MeasuredRank(kind_of_device(own), place, seconds_per_example)


def kind_of_device(own: RankDevice) -> str:
    """Return the model of this process's GPU, or its processors."""
    if own.device.type == "cpu":
        return f"CPU, {own.threads} threads"
    return str(torch.cuda.get_device_name(own.device))


def _local_step(parts: TrainingParts, config: TrainConfig, rows: int) -> Callable[[], float]:
    """Return a forward and backward pass on the device of this rank, without an update."""
    spec, device = parts.spec, parts.device
    model = build_model(replace(spec, synchronized=False, weights=None))
    freeze_modules(model, config.model.freeze)
    model = model.to(device, memory_format=torch.channels_last)
    set_training(model)
    shape = (rows, spec.image_channels, spec.image_size, spec.image_size)
    images = torch.zeros(shape, dtype=torch.uint8, device=device).contiguous(
        memory_format=torch.channels_last
    )

    def step() -> float:
        model.zero_grad(set_to_none=True)
        with parts.autocast():
            # Any loss will do: the work does not depend on it.
            loss = model(pixels(images)).float().sum()
        loss.backward()
        gradients = [own.grad for own in model.parameters() if own.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))  # waits for the device

    return step
