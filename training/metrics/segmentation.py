"""The figures of semantic segmentation.

Of each class, the intersection over union is the number of pixels that have it and were predicted so, divided
by the number of those that have it or were predicted so (Everingham et al., The Pascal Visual Object Classes
Challenge, 2010). Pixels that belong to no class do not count. ``mean_iou`` is the mean over the classes that
occur in the labels or in the predictions; all pixels of a split are counted together, not image by image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Ints
from shardmill.training.metrics.confusion import mean_where, ratio
from shardmill.training.metrics.evaluation import LOSS, Evaluation, Figure, Rows, Tally


@dataclass(frozen=True, slots=True)
class SegmentationEvaluation(Evaluation):
    """The result of evaluating a segmentation model on a split.

    Attributes:
        hits, support, predicted: int64 [C], for each class the pixels that have it and were predicted so,
            those that have it, and those that were predicted so.
        loss: mean over the examples of the cross-entropy of their pixels (nats).
        num_examples: the number of evaluated examples.
    """

    task = "segmentation"
    FIGURES = (
        Figure(
            "mean_iou", "mean IoU", "mean over the classes of intersection ÷ union",
            lambda found: mean_where(found.iou(), found.union()), is_share=True,
        ),
        Figure(
            "pixel_accuracy", "pixel accuracy", "share of the pixels with a class whose class was predicted",
            lambda found: float(ratio(found.hits.sum(), found.support.sum())), is_share=True,
        ),
        LOSS,
    )  # fmt: skip

    hits: Ints
    support: Ints
    predicted: Ints
    loss: float
    num_examples: int

    def union(self) -> Ints:
        """Return the pixels that have a class or were predicted so: int64 [C]."""
        return self.support + self.predicted - self.hits

    def iou(self) -> npt.NDArray[np.float64]:
        """Return intersection ÷ union of each class, 0 where it does not occur: float64 [C]."""
        return ratio(self.hits, self.union())

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        columns = (self.iou(), self.support, self.predicted)
        rows = {
            name: {"iou": share, "support": of_class, "predicted_pixels": as_class}
            for name, share, of_class, as_class in zip(
                classes, *(column.tolist() for column in columns), strict=True
            )
        }
        return {**self.figures(), "num_examples": self.num_examples, "per_class": rows}


class SegmentationTally(Tally):
    """Sums up the pixels of predicted masks.

    Args:
        num_classes: the number of classes, C. Larger numbers in labels are no class.
    """

    def __init__(self, num_classes: int) -> None:
        self._counts = np.zeros((3, num_classes), np.int64)
        self._loss_sum = 0.0
        self._num_examples = 0

    def add(self, labels: npt.NDArray[Any], rows: Rows) -> None:
        """Count examples: labels and ``predicted`` [n, S, S]; losses [n]."""
        self._counts += _pixels(labels, rows["predicted"], self._counts.shape[1])
        self._loss_sum += float(rows["losses"].astype(np.float64).sum())
        self._num_examples += len(labels)

    def evaluation(self) -> SegmentationEvaluation:
        """Return the figures of all examples so far."""
        loss = self._loss_sum / max(self._num_examples, 1)
        hits, support, predicted = self._counts.copy()
        return SegmentationEvaluation(hits, support, predicted, loss, self._num_examples)


def _pixels(labels: npt.NDArray[Any], predicted: npt.NDArray[Any], num_classes: int) -> Ints:
    """Count the pixels with a class that were predicted rightly, those of each class, and as each: [3, C]."""
    known = labels < num_classes
    wanted, found = labels[known].astype(np.int64), predicted[known].astype(np.int64)
    parts = (wanted[wanted == found], wanted, found)
    return np.array([np.bincount(part, minlength=num_classes) for part in parts], np.int64)


def summarized(labels: npt.NDArray[Any], rows: Rows, num_classes: int) -> tuple[npt.NDArray[Any], Rows]:
    """Summarize n records with masks, so that no mask stays in memory.

    Args:
        labels: [n, S, S].
        rows: ``losses`` [n] and ``predicted`` [n, S, S].
        num_classes: the number of classes, C.

    Returns:
        A digest of each label, bytes [n]; and ``losses``, the ``sides`` of masks (pixels), and ``pixels``,
        int64 [n, 3, C], as in ``SegmentationEvaluation``.
    """
    counts = [_pixels(*pair, num_classes) for pair in zip(labels, rows["predicted"], strict=True)]
    digests = [hashlib.sha256(np.ascontiguousarray(label).tobytes()).digest() for label in labels]
    each = np.array(counts, np.int64).reshape(-1, 3, num_classes)
    sides = np.full(len(each), labels.shape[1])
    return np.array(digests, "S32"), {"losses": rows["losses"], "sides": sides, "pixels": each}


def resampled(_labels: Any, rows: Rows, _num_classes: int) -> Callable[[Ints], SegmentationEvaluation]:
    """Return a function that evaluates N summarized records, each counted so many times: int64 [N]."""
    pixels, losses = rows["pixels"].astype(np.float64), rows["losses"].astype(np.float64)
    flat = pixels.reshape(len(pixels), -1)

    def evaluated(times: Ints) -> SegmentationEvaluation:
        hits, support, predicted = np.rint(times @ flat).astype(np.int64).reshape(pixels.shape[1:])
        loss = float((times * losses).sum() / times.sum())
        return SegmentationEvaluation(hits, support, predicted, loss, int(times.sum()))

    return evaluated
