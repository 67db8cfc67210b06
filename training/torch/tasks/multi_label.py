"""Multi-label classification with PyTorch: each example has any number of C classes, also none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.nn import functional

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.export.measures import LabelsMeasure
from shardmill.training.results.metrics.multi_label import MultiLabelTally
from shardmill.training.results.predictions.columns import MultiLabelColumns
from shardmill.training.torch.data.transforms.device import AugmentedBatch


@dataclass(frozen=True, slots=True)
class MultiLabel:
    """Binary cross-entropy of each class, averaged over the classes, as with TensorFlow. Implements ``Task``.

    Attributes:
        num_outputs: the number of classes, C.
        label_smoothing: share of each target that is moved to 1/2 in training.
    """

    num_outputs: int
    label_smoothing: float = 0.0
    score_name = "exact_match"

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

    def form_measure(self) -> LabelsMeasure:
        """Return how exported forms are compared with the model."""
        return LabelsMeasure()

    def tally(self) -> MultiLabelTally:
        """Return an empty tally."""
        return MultiLabelTally(self.num_outputs)

    def columns(self) -> MultiLabelColumns:
        """Return the columns of a file of predictions."""
        return MultiLabelColumns()


def build(version: DatasetVersion, config: TrainConfig) -> MultiLabel:
    """Make the task of a dataset version."""
    return MultiLabel(len(version.manifest.classes), config.optimizer.label_smoothing)


def _losses(outputs: Any, targets: Any) -> Any:
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)
