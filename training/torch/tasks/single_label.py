"""Single-label classification with PyTorch: each example has exactly one of C classes."""

from __future__ import annotations

from typing import Any

from torch.nn import functional

from shardmill.training.tasks.kinds import OneClass
from shardmill.training.torch.data.transforms.device import AugmentedBatch


class SingleLabel(OneClass):
    """Softmax cross-entropy over logits, as with TensorFlow. Implements ``Task``."""

    def training_losses(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: of both labels, in their shares."""

        def losses(labels: Any) -> Any:
            return functional.cross_entropy(
                outputs, labels, reduction="none", label_smoothing=self.label_smoothing
            )

        return batch.losses(losses) if batch.is_mixed else losses(batch.labels)

    def scores(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return whether the class with the greater share was predicted: bool [b]."""
        return outputs.argmax(dim=1) == batch.dominating_labels()

    def evaluated(self, outputs: Any, labels: Any) -> dict[str, Any]:
        """Return ``losses`` float32 [b] (nats), ``predicted`` int64 [b], ``probabilities`` float32 [b, C]."""
        return {
            "losses": functional.cross_entropy(outputs, labels, reduction="none"),
            "predicted": outputs.argmax(dim=1),
            "probabilities": outputs.softmax(dim=1),
        }

    def served(self, outputs: Any) -> Any:
        """Return the probabilities of the classes: float32 [b, C]."""
        return outputs.softmax(dim=1)
