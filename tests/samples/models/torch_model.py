"""A model of a user in PyTorch, found by its dotted name. Without batch normalisation: rows do not mix."""

from __future__ import annotations

from typing import Any

from torch import nn

from shardmill.training.models import ModelSpec
from shardmill.training.torch.models import Normalization

DEFAULT_IMAGE_SIZE = 16


def build(spec: ModelSpec) -> Any:
    """Two convolutions with group normalisation, and a classifier."""
    return nn.Sequential(
        Normalization.of(spec),
        nn.Conv2d(spec.image_channels, 8, 3, stride=2, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(spec.dropout),
        nn.Linear(16, spec.num_classes),
    )
