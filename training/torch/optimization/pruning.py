"""Magnitude pruning with PyTorch, by ``shardmill.training.run.pruning``."""

from __future__ import annotations

from typing import Any

import torch

from shardmill.training.run.pruning import Pruning, PruningSchedule
from shardmill.training.torch.models.layers import NORMALIZATIONS, weighted_modules
from shardmill.training.torch.state import TensorState


class MaskedPruning(Pruning):
    """The masks of a model's weights; every rank computes the same.

    Attributes:
        schedule: when they are chosen, and how many weights.
        saved: the masks; the state for checkpoints.
    """

    def __init__(self, schedule: PruningSchedule, model: Any) -> None:
        """Begin with masks that leave everything. Biases and normalisation layers are left alone."""
        self.schedule = schedule
        self._pairs = [
            (torch.ones_like(own, dtype=torch.bool), own, f"keep.{name}.{part}")
            for name, module in weighted_modules(model)
            if not isinstance(module, NORMALIZATIONS)
            for part, own in module.named_parameters(recurse=False)
            if own.requires_grad and own.ndim >= 2
        ]
        self.saved = [TensorState(name, mask) for mask, _, name in self._pairs]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def after_step(self, steps_done: int) -> None:
        """Choose the weights that become zero where it is time to, and make the pruned ones zero again."""
        share = self.schedule.sparsity(steps_done) if self.schedule.is_due(steps_done) else None
        for mask, weights, _ in self._pairs:
            if share is not None:
                # Weights that are zero already come first, so that they stay zero.
                ranks = weights.abs().flatten().argsort(stable=True).argsort(stable=True)
                mask.copy_((ranks >= round(share * weights.numel())).view(mask.shape))
            weights.mul_(mask)

    def share_of_zeros(self) -> float:
        """Return the share of zeros among the weights that can be pruned."""
        zeros = sum(int((weights == 0).sum()) for _, weights, _ in self._pairs)
        return float(zeros / max(sum(mask.numel() for mask, _, _ in self._pairs), 1))
