"""A small model in PyTorch whose gradient is not a number in one step; see ``nan_gradient_model``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from shardmill.training.models import ModelSpec
from tests.samples.models import torch_model

DEFAULT_IMAGE_SIZE = 16
NAN_AT = 12  # the last step of the second epoch


class SpoilsGradient(nn.Module):  # type: ignore[misc]
    """Passes logits on, and counts the steps in a buffer that checkpoints hold."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, logits: Any) -> Any:
        """Return the logits. The gradient of a root is infinite at zero."""
        if not self.training:
            return logits
        self.steps += 1
        spoils = self.steps == NAN_AT
        return logits + torch.where(spoils, 0.0 * logits, 1.0).sqrt() - torch.where(spoils, 0.0, 1.0)


def build(spec: ModelSpec) -> Any:
    """The model."""
    return nn.Sequential(torch_model.build(spec), SpoilsGradient())
