"""Single-label classification with PyTorch: each example has exactly one of C classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.nn import functional

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.export.measures import ClassMeasure
from shardmill.training.results.metrics.single_label import SingleLabelTally
from shardmill.training.results.predictions.columns import SingleLabelColumns
from shardmill.training.torch.data.transforms.device import AugmentedBatch


@dataclass(frozen=True, slots=True)
class SingleLabel:
    """Softmax cross-entropy over logits, as with TensorFlow. Implements ``Task``.

    Attributes:
        num_outputs: the number of classes, C.
        label_smoothing: share of the target that training spreads over all classes (Szegedy et al. 2016).
    """

    num_outputs: int
    label_smoothing: float = 0.0
    score_name = "accuracy"

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

    def form_measure(self) -> ClassMeasure:
        """Return how exported forms are compared with the model."""
        return ClassMeasure()

    def tally(self) -> SingleLabelTally:
        """Return an empty tally."""
        return SingleLabelTally(self.num_outputs)

    def columns(self) -> SingleLabelColumns:
        """Return the columns of a file of predictions."""
        return SingleLabelColumns()


def build(version: DatasetVersion, config: TrainConfig) -> SingleLabel:
    """Make the task of a dataset version."""
    return SingleLabel(len(version.manifest.classes), config.optimizer.label_smoothing)
