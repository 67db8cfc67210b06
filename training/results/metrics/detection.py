"""The figures of object detection: average precision and recall, as COCO defines them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.results.metrics.box_matching import OVERLAPS, match_boxes
from shardmill.training.results.metrics.tally import Rows

_RECALLS = np.linspace(0.0, 1.0, 101)
_BITS = 1 << np.arange(len(OVERLAPS), dtype=np.uint16)


@dataclass(frozen=True, slots=True)
class DetectionEvaluation:
    """The result of evaluating a detector on a split.

    Attributes:
        precision: float64 [C, 10], the average precision of each class at each of ``OVERLAPS``; 0 if it has
            no objects.
        recall: float64 [C, 10], likewise the share of the objects that were found at all.
        support: int64 [C], objects of each class; crowds do not count.
        loss: mean of the examples' losses.
        num_examples: evaluated images.
    """

    precision: Floats
    recall: Floats
    support: Ints
    loss: float
    num_examples: int

    def figures(self) -> dict[str, float]:
        """Return the figures by name; see ``shardmill.training.results.metrics``."""
        has_objects = self.support > 0
        if not has_objects.any():
            return dict.fromkeys(("average_precision", "average_precision_50", "average_recall"), 0.0) | {
                "loss": self.loss
            }
        return {
            "average_precision": float(self.precision[has_objects].mean()),
            "average_precision_50": float(self.precision[has_objects, 0].mean()),
            "average_recall": float(self.recall[has_objects].mean()),
            "loss": self.loss,
        }

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        per_class = {
            name: {
                "support": int(self.support[number]),
                "average_precision": float(self.precision[number].mean()),
                "average_precision_50": float(self.precision[number, 0]),
                "recall": float(self.recall[number, 0]),
            }
            for number, name in enumerate(classes)
        }
        return {**self.figures(), "num_examples": self.num_examples, "per_class": per_class}


class DetectionTally:
    """Sums up found boxes. It keeps eight bytes of each: average precision needs all of them in order."""

    def __init__(self, num_classes: int) -> None:
        # Of each class: float32 scores and uint16 bits, without an array object for each image.
        self._scores = [array("f") for _ in range(num_classes)]
        self._hits = [array("H") for _ in range(num_classes)]
        self._ignored = [array("H") for _ in range(num_classes)]
        self._support = np.zeros(num_classes, np.int64)
        self._loss_sum = 0.0
        self._num_examples = 0

    def add(self, labels: Any, rows: Rows) -> None:
        """Count examples.

        Args:
            labels: ``boxes`` [n, M, 4], ``classes`` [n, M] and ``crowds`` [n, M] of ``Objects``.
            rows: ``losses`` [n]; ``boxes`` [n, k, 4], ``scores`` [n, k] and ``classes`` [n, k] of the boxes
                that were found, -1 behind the last one.
        """
        for wanted in zip(
            labels["boxes"], labels["classes"], labels["crowds"],
            rows["boxes"], rows["scores"], rows["classes"], strict=True,
        ):  # fmt: skip
            self._add_image(*wanted)
        self._loss_sum += float(rows["losses"].astype(np.float64).sum())
        self._num_examples += len(rows["losses"])

    def _add_image(self, boxes: Any, classes: Any, crowds: Any, found: Any, scores: Any, kinds: Any) -> None:
        self._support += np.bincount(classes[(classes >= 0) & ~crowds], minlength=self._support.size)
        for kind in np.unique(kinds[kinds >= 0]).tolist():
            chosen = np.flatnonzero(kinds == kind)
            chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
            own = classes == kind
            hits, ignored = match_boxes(found[chosen], boxes[own], crowds[own])
            self._scores[kind].frombytes(scores[chosen].astype(np.float32).tobytes())
            self._hits[kind].frombytes((hits * _BITS).sum(axis=1).astype(np.uint16).tobytes())
            self._ignored[kind].frombytes((ignored * _BITS).sum(axis=1).astype(np.uint16).tobytes())

    def evaluation(self) -> DetectionEvaluation:
        """Return the figures of all examples so far."""
        figures = np.zeros((2, self._support.size, len(OVERLAPS)))
        for kind, support in enumerate(self._support.tolist()):
            if support and self._scores[kind]:
                order = np.argsort(-np.array(self._scores[kind]), kind="stable")
                hits = _as_bools(np.array(self._hits[kind])[order])
                counts = ~_as_bools(np.array(self._ignored[kind])[order])
                for at in range(len(OVERLAPS)):
                    figures[:, kind, at] = precision_and_recall(hits[counts[:, at], at], support)
        loss = self._loss_sum / max(self._num_examples, 1)
        return DetectionEvaluation(figures[0], figures[1], self._support.copy(), loss, self._num_examples)


def precision_and_recall(
    hits: npt.NDArray[np.bool_], support: int, times: Ints | None = None
) -> tuple[float, float]:
    """Return the average precision of boxes, and their recall.

    The precision is that of 101 levels of recall, at each the best that is reached there or later.

    Args:
        hits: bool [n], which boxes are right, the surest first.
        support: the number of objects, above 0.
        times: int64 [n], how many times each box counts, above 0; None: once.
    """
    each = np.ones(len(hits), np.int64) if times is None else times
    right = np.cumsum(hits * each)
    recall = right / support
    precision = right / np.cumsum(each)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, _RECALLS, side="left")
    reached = places < len(best)
    return float(best[places[reached]].sum() / len(_RECALLS)), float(recall[-1]) if len(hits) else 0.0


def _as_bools(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.bool_]:
    return (bits[:, np.newaxis] & _BITS) > 0
