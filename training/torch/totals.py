"""Sums over training steps that stay on the device until they are reported."""

from __future__ import annotations

from typing import Any

import torch

from shardmill.training.run.framework import StepTotals
from shardmill.training.torch.group import TorchRanks


class DeviceTotals:
    """``StepTotals`` in one tensor: a report fetches it once, a step fetches nothing."""

    def __init__(self, ranks: TorchRanks, device: Any) -> None:
        self._ranks = ranks
        # Loss, score, gradient norm, finite norms, those before the first that is not finite, norms that are
        # not, and losses of this rank that are not.
        self._sums = torch.zeros(7, dtype=torch.float64, device=device)

    def add(self, loss: Any, score: Any) -> None:
        """Add this rank's part of the loss, times the number of real examples, and the sum of its scores."""
        self._sums[0] += loss
        self._sums[1] += score
        self._sums[6] += ~torch.isfinite(loss)

    def add_norm(self, norm: Any) -> None:
        """Add the gradient norm of a step, which is the same on all ranks."""
        if self._ranks.is_first:
            finite = torch.isfinite(norm)
            self._sums[2] += norm
            self._sums[3] += finite
            self._sums[4] += finite & (self._sums[5] == 0)
            self._sums[5] += ~finite

    def take(self) -> StepTotals:
        """Return the sums over all ranks, and begin again at zero. It waits for the device."""
        own = self._sums.cpu().numpy()
        not_finite = round(own[6])
        loss, score, norm, finite, sound, *_ = self._ranks.total(own).tolist()
        self._sums.zero_()
        return StepTotals(loss, score, norm, round(finite), round(sound), not_finite)
