"""A model of a user in PyTorch with blocks, which normalise batches and drop features."""

from __future__ import annotations

from typing import Any

from torch import nn

from shardmill.training.models import ModelSpec
from shardmill.training.torch.models import Normalization

DEFAULT_IMAGE_SIZE = 16


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions beside a short-cut."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.drop = nn.Dropout(dropout)
        self.after = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, images: Any) -> Any:
        """Add the output of the convolutions to the input."""
        return nn.functional.relu(images + self.after(self.drop(self.before(images))))


def build(spec: ModelSpec) -> Any:
    """A convolution, three blocks, and a classifier."""
    return nn.Sequential(
        Normalization.of(spec),
        nn.Conv2d(spec.image_channels, 8, 3, stride=2, padding=1),
        nn.Sequential(*(Block(8, spec.dropout) for _ in range(3))),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, spec.num_classes),
    )
