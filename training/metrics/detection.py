"""The figures of object detection: average precision and recall, as COCO defines them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.box_matching import OVERLAPS, match_boxes
from shardmill.training.metrics.confusion import mean_where
from shardmill.training.metrics.evaluation import LOSS, Evaluation, Figure, Rows, Tally

_RECALLS = np.linspace(0.0, 1.0, 101)
_BITS = 1 << np.arange(len(OVERLAPS), dtype=np.uint16)
_FOUND = np.dtype([("kind", "i4"), ("score", "f4"), ("hits", "?", 10), ("ignored", "?", 10)])


@dataclass(frozen=True, slots=True)
class DetectionEvaluation(Evaluation):
    """The result of evaluating a detector on a split, over at most 100 boxes an image (Lin et al. 2014).

    Attributes:
        precision: float64 [C, 10], the average precision of each class at each of ``OVERLAPS``; 0 if it has
            no objects.
        recall: float64 [C, 10], likewise the share of the objects that were found at all.
        support: int64 [C], objects of each class; crowds do not count.
        loss: mean of the examples' losses.
        num_examples: evaluated images.
    """

    task = "detection"
    FIGURES = (
        Figure(
            "average_precision", "average precision (overlap 0.5 to 0.95)",
            "mean over the classes that have objects, and over overlaps of 0.5, 0.55, … 0.95",
            lambda found: mean_where(found.precision.mean(axis=1), found.support), is_share=True,
        ),
        Figure(
            "average_precision_50", "average precision (overlap 0.5)", "likewise at an overlap of 0.5",
            lambda found: mean_where(found.precision[:, 0], found.support), is_share=True,
        ),
        Figure(
            "average_recall", "average recall",
            "share of the objects that are found at all, mean as for average_precision",
            lambda found: mean_where(found.recall.mean(axis=1), found.support),
            is_share=True, has_curve=False,
        ),
        LOSS,
    )  # fmt: skip

    precision: Floats
    recall: Floats
    support: Ints
    loss: float
    num_examples: int

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


class OrientedEvaluation(DetectionEvaluation):
    """The same of oriented boxes, whose overlap is that of their areas."""

    task = "oriented-detection"


class DetectionTally(Tally):
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
            labels: ``boxes`` [n, M, 4 or 8], ``classes`` [n, M] and ``crowds`` [n, M] of ``Objects``.
            rows: ``losses`` [n]; ``boxes`` [n, k, 4 or 8], ``scores`` [n, k] and ``classes`` [n, k] of the
                boxes that were found, -1 behind the last one.
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


def summarized(labels: Any, rows: Rows, num_classes: int) -> tuple[Any, Rows]:
    """Summarize n records with boxes: these are matched once, not in each resample.

    Args:
        labels: as ``DetectionTally.add`` takes them.
        rows: likewise.
        num_classes: the number of classes, C.

    Returns:
        A digest of each label, bytes [n]; and ``losses``, ``support`` int64 [n, C], the objects of each
        class, and ``found`` [n], the boxes of each record with class, score, and where they are right.
    """
    num_records = len(rows["losses"])
    support, found = np.zeros((num_records, num_classes), np.int64), np.empty(num_records, object)
    digests = []
    for at in range(num_records):
        kinds, crowds = labels["classes"][at], labels["crowds"][at]
        is_object = kinds >= 0
        support[at] = np.bincount(kinds[is_object & ~crowds], minlength=num_classes)
        wanted = _Wanted(labels["boxes"][at][is_object], kinds[is_object], crowds[is_object])
        parts = (np.ascontiguousarray(part).tobytes() for part in wanted)
        digests.append(hashlib.sha256(b"".join(parts)).digest())
        is_box = rows["classes"][at] >= 0
        predicted = _Predicted(*(rows[name][at][is_box] for name in ("boxes", "classes", "scores")))
        found[at] = _matched(wanted, predicted)
    return np.array(digests, "S32"), {"losses": rows["losses"], "support": support, "found": found}


class _Wanted(NamedTuple):
    """The objects of a record: boxes float32 [M, 4], classes and whether each is a crowd [M]."""

    boxes: Any
    classes: Any
    crowds: Any


class _Predicted(NamedTuple):
    """The boxes that a model found in a record: float32 [K, 4], with class and score [K]."""

    boxes: Any
    classes: Any
    scores: Any


def _matched(wanted: _Wanted, predicted: _Predicted) -> npt.NDArray[Any]:
    """Match the boxes of a record class by class, the highest score first; return them as _FOUND [K]."""
    result = np.zeros(len(predicted.classes), _FOUND)
    result["kind"], result["score"] = predicted.classes, predicted.scores
    for kind in np.unique(predicted.classes).tolist():
        chosen = np.flatnonzero(predicted.classes == kind)
        chosen = chosen[np.argsort(-predicted.scores[chosen], kind="stable")]
        of_kind = wanted.classes == kind
        hits, ignored = match_boxes(predicted.boxes[chosen], wanted.boxes[of_kind], wanted.crowds[of_kind])
        result["hits"][chosen], result["ignored"][chosen] = hits, ignored
    return result


class _ClassBoxes(NamedTuple):
    """All found boxes of a class, the highest score first.

    Attributes:
        records: int64 [K], the record of each.
        hits, counts: bool [K, overlaps], whether it is right, and whether it counts (crowds do not).
    """

    records: Ints
    hits: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.bool_]


def resampled(_labels: Any, rows: Rows, _num_classes: int) -> Callable[[Ints], DetectionEvaluation]:
    """Return a function that evaluates N summarized records, each counted so many times: int64 [N]."""
    supports, losses = rows["support"].astype(np.float64), rows["losses"].astype(np.float64)
    num_classes = supports.shape[1]
    lengths = [len(found) for found in rows["found"]]
    everything = np.concatenate([np.zeros(0, _FOUND), *rows["found"]])
    records = np.repeat(np.arange(len(lengths)), lengths)
    of_class: list[_ClassBoxes] = []
    for kind in range(num_classes):
        chosen = np.flatnonzero(everything["kind"] == kind)
        chosen = chosen[np.argsort(-everything["score"][chosen], kind="stable")]
        found = everything[chosen]
        of_class.append(_ClassBoxes(records[chosen], found["hits"], ~found["ignored"]))

    def evaluated(times: Ints) -> DetectionEvaluation:
        support, total = np.rint(times @ supports).astype(np.int64), int(times.sum())
        figures = np.zeros((2, num_classes, len(OVERLAPS)))
        for kind in np.flatnonzero(support).tolist():
            boxes = of_class[kind]
            for at in range(len(OVERLAPS)):
                weights = times[boxes.records] * boxes.counts[:, at]
                drawn = weights > 0
                figures[:, kind, at] = precision_and_recall(
                    boxes.hits[drawn, at], int(support[kind]), weights[drawn]
                )
        loss = float((times * losses).sum() / total)
        return DetectionEvaluation(figures[0], figures[1], support, loss, total)

    return evaluated
