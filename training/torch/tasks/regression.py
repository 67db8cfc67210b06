"""Regression with PyTorch: each example has T numbers."""

from __future__ import annotations

from typing import Any

import torch

from shardmill.training.tasks.kinds import Numbers
from shardmill.training.torch.data.transforms.device import AugmentedBatch


class Regression(Numbers):
    """Squared error of standard scores, as with TensorFlow. Implements ``Task``."""

    def training_losses(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: against the mixed target."""
        return self._losses(outputs, batch.mixed_targets())

    def scores(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return the absolute error in the unit of the labels, averaged over the targets: float32 [b]."""
        return (self.served(outputs) - batch.mixed_targets()).abs().mean(dim=1)

    def evaluated(self, outputs: Any, labels: Any) -> dict[str, Any]:
        """Return ``losses`` float32 [b], and ``predicted`` float32 [b, T] in the unit of the labels."""
        return {"losses": self._losses(outputs, labels), "predicted": self.served(outputs)}

    def served(self, outputs: Any) -> Any:
        """Return the numbers in the unit of the labels: float32 [b, T]."""
        return outputs * _like(self.std, outputs) + _like(self.mean, outputs)

    def _losses(self, outputs: Any, labels: Any) -> Any:
        wanted = (labels - _like(self.mean, outputs)) / _like(self.std, outputs)
        return (outputs - wanted).square().mean(dim=1)


def _like(values: tuple[float, ...], outputs: Any) -> Any:
    return torch.tensor(values, dtype=outputs.dtype, device=outputs.device)
