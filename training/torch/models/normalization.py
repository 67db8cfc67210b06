"""Normalise pixels in a module of the model, so that the exported model takes images as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from shardmill.training.models.spec import LEAST_STD, ModelSpec


class Normalization(nn.Module):  # type: ignore[misc]
    """Subtracts a mean from each channel and divides it by a deviation.

    It has no state: weights of a model fit any dataset.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Normalise by ``mean`` and ``std`` of each channel, or of all, in the unit of the pixels."""
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            values = torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    @classmethod
    def of(cls, spec: ModelSpec) -> Normalization:
        """Normalise to mean 0 and deviation 1 over the train split; without its statistics, to -1 to 1."""
        if spec.pixels is None:
            return cls([127.5], [127.5])
        return cls(spec.pixels.mean, [max(std, LEAST_STD) for std in spec.pixels.std])

    def forward(self, images: Any) -> Any:
        """Normalise float32 [B, C, H, W]."""
        return (images - self.mean) / self.std
