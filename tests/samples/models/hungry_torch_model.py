"""A model in PyTorch whose steps need far more memory with each further example, as ``hungry_model``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from shardmill.training.models import ModelSpec

DEFAULT_IMAGE_SIZE = 8


class Hungry(nn.Module):  # type: ignore[misc]
    """Returns its input, with 4 * 2^(3 b² / 4) bytes taken and given back where b examples train."""

    def forward(self, inputs: Any) -> Any:
        """Waste memory in training. Eight examples ask for a petabyte, which no allocator gives."""
        if not self.training:
            return inputs
        return inputs + torch.ones(int(2 ** (0.75 * len(inputs) ** 2))).max() * 0


def build(spec: ModelSpec) -> Any:
    """A linear classifier of the mean colour, behind a layer that wastes memory in training."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), Hungry(), nn.Linear(spec.image_channels, spec.num_classes)
    )
