"""Multi-label classification with PyTorch: each example has any number of C classes, also none."""

from __future__ import annotations

from typing import Any

from torch.nn import functional

from shardmill.training.tasks.kinds import SeveralClasses
from shardmill.training.torch.data.transforms.device import AugmentedBatch


class MultiLabel(SeveralClasses):
    """Binary cross-entropy of each class, averaged over them, as with TensorFlow. Implements ``Task``."""

    def training_losses(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: against both labels, in their shares."""
        targets = batch.mixed_targets() * (1.0 - self.label_smoothing) + 0.5 * self.label_smoothing
        return _losses(outputs, targets)

    def scores(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return whether exactly the right classes were predicted: bool [b]."""
        return ((outputs > 0.0) == (batch.mixed_targets() >= 0.5)).all(dim=1)

    def evaluated(self, outputs: Any, labels: Any) -> dict[str, Any]:
        """Return ``losses`` float32 [b], ``predicted`` bool [b, C], ``probabilities`` float32 [b, C]."""
        return {
            "losses": _losses(outputs, labels),
            "predicted": outputs > 0.0,
            "probabilities": outputs.sigmoid(),
        }

    def served(self, outputs: Any) -> Any:
        """Return the probability of each class by itself: float32 [b, C]."""
        return outputs.sigmoid()


def _losses(outputs: Any, targets: Any) -> Any:
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)
