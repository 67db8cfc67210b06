"""The figures of semantic segmentation.

Of each class, the intersection over union is the number of pixels that have it and were predicted so, divided
by the number of those that have it or were predicted so (Everingham et al., The Pascal Visual Object Classes
Challenge, 2010). Pixels that belong to no class do not count. ``mean_iou`` is the mean over the classes that
occur in the labels or in the predictions; all pixels of a split are counted together, not image by image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Ints
from shardmill.training.results.metrics.tally import Rows


@dataclass(frozen=True, slots=True)
class SegmentationEvaluation:
    """The result of evaluating a segmentation model on a split.

    Attributes:
        confusion: int64 [C, C], pixels by their class and the class that was predicted.
        loss: mean of the examples' losses (nats).
        num_examples: the number of evaluated examples.
    """

    confusion: Ints
    loss: float
    num_examples: int

    def figures(self) -> dict[str, float]:
        """Return the figures by name; see ``shardmill.training.results.metrics``."""
        iou, occurs = self._intersections_over_unions()
        pixels = int(self.confusion.sum())
        return {
            "loss": self.loss,
            "mean_iou": float(iou[occurs].mean()) if occurs.any() else 0.0,
            "pixel_accuracy": int(np.trace(self.confusion)) / pixels if pixels else 0.0,
        }

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        iou, _ = self._intersections_over_unions()
        pixels, predicted = self.confusion.sum(1).tolist(), self.confusion.sum(0).tolist()
        rows = {
            name: {"iou": share, "support": of_class, "predicted_pixels": as_class}
            for name, share, of_class, as_class in zip(classes, iou.tolist(), pixels, predicted, strict=True)
        }
        return {**self.figures(), "num_examples": self.num_examples, "per_class": rows}

    def _intersections_over_unions(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the figure of each class, 0 where it does not occur, and whether it occurs: [C] each."""
        hits = np.diagonal(self.confusion).astype(np.float64)
        union = self.confusion.sum(0) + self.confusion.sum(1) - np.diagonal(self.confusion)
        return hits / np.maximum(union, 1), union > 0


class SegmentationTally:
    """Sums up the pixels of predicted masks.

    Args:
        num_classes: the number of classes, C. Larger numbers in labels are no class.
    """

    def __init__(self, num_classes: int) -> None:
        self._confusion = np.zeros((num_classes, num_classes), np.int64)
        self._loss_sum = 0.0
        self._num_examples = 0

    def add(self, labels: npt.NDArray[Any], rows: Rows) -> None:
        """Count examples: labels and ``predicted`` [n, S, S]; losses [n]."""
        num_classes = len(self._confusion)
        counts = labels < num_classes
        pairs = labels[counts].astype(np.int64) * num_classes + rows["predicted"][counts]
        found = np.bincount(pairs, minlength=num_classes**2)
        self._confusion += found.reshape(num_classes, num_classes)
        self._loss_sum += float(rows["losses"].astype(np.float64).sum())
        self._num_examples += len(labels)

    def evaluation(self) -> SegmentationEvaluation:
        """Return the figures of all examples so far."""
        loss = self._loss_sum / max(self._num_examples, 1)
        return SegmentationEvaluation(self._confusion.copy(), loss, self._num_examples)
