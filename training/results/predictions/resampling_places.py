"""Figures of masks and of boxes over records that are drawn with replacement.

Both begin with a summary of each record: of a mask its pixels by class, of boxes which of them are right. So
no mask stays in memory, and boxes are matched once, not in each resample.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.results.metrics.box_matching import OVERLAPS, match_boxes
from shardmill.training.results.metrics.detection import precision_and_recall
from shardmill.training.results.metrics.tally import Rows

_FOUND = np.dtype([("kind", "i4"), ("score", "f4"), ("hits", "?", 10), ("ignored", "?", 10)])


def summarized_masks(labels: Any, rows: Rows, num_classes: int) -> tuple[Any, Rows]:
    """Summarize n records with masks.

    Args:
        labels: [n, S, S].
        rows: ``losses`` [n] and ``predicted`` [n, S, S].
        num_classes: the number of classes, C.

    Returns:
        A digest of each label, bytes [n]; and ``losses``, the ``sides`` of masks (pixels), and ``hits``,
        ``support`` and ``taken``: int64 [n, C], the pixels that were predicted rightly, those of each class,
        and those that were taken for it.
    """
    counts: list[list[Ints]] = []
    for label, predicted in zip(labels, rows["predicted"], strict=True):
        known = label < num_classes
        wanted, found = label[known].astype(np.int64), predicted[known].astype(np.int64)
        parts = (wanted[wanted == found], wanted, found)
        counts.append([np.bincount(part, minlength=num_classes) for part in parts])
    each = np.array(counts, np.int64).reshape(-1, 3, num_classes)
    names = ("hits", "support", "taken")
    summary = {name: each[:, number] for number, name in enumerate(names)}
    sides = np.full(len(each), labels.shape[1])
    return _digests(labels), {"losses": rows["losses"], "sides": sides, **summary}


def summarized_boxes(labels: Any, rows: Rows, num_classes: int) -> tuple[Any, Rows]:
    """Summarize n records with boxes.

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


def _digests(labels: npt.NDArray[Any]) -> npt.NDArray[np.bytes_]:
    return np.array(
        [hashlib.sha256(np.ascontiguousarray(label).tobytes()).digest() for label in labels], "S32"
    )


class MaskFigures:
    """A class for each pixel. Implements ``ResampledFigures``."""

    def __init__(self, rows: Rows) -> None:
        """Take what ``summarized_masks`` returns."""
        self._counts = [rows[name].astype(np.float64) for name in ("hits", "support", "taken")]
        self._losses = rows["losses"].astype(np.float64)

    def of(self, times: Ints) -> dict[str, float]:
        """Return mean IoU, pixel accuracy and loss."""
        hits, support, taken = (times @ counts for counts in self._counts)
        union = support + taken - hits
        occurs = union > 0
        return {
            "mean_iou": float((hits[occurs] / union[occurs]).mean()) if occurs.any() else 0.0,
            "pixel_accuracy": float(hits.sum() / support.sum()) if support.any() else 0.0,
            "loss": float((times * self._losses).sum() / times.sum()),
        }


class _ClassBoxes(NamedTuple):
    """All found boxes of a class, the highest score first.

    Attributes:
        records: int64 [K], the record of each.
        hits, counts: bool [K, overlaps], whether it is right, and whether it counts (crowds do not).
    """

    records: Ints
    hits: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.bool_]


class BoxFigures:
    """Objects. Implements ``ResampledFigures``."""

    def __init__(self, rows: Rows) -> None:
        """Take what ``summarized_boxes`` returns."""
        self._support = rows["support"].astype(np.float64)
        self._losses = rows["losses"].astype(np.float64)
        lengths = [len(found) for found in rows["found"]]
        everything = np.concatenate([np.zeros(0, _FOUND), *rows["found"]])
        records = np.repeat(np.arange(len(lengths)), lengths)
        self._of_class: list[_ClassBoxes] = []
        for kind in range(self._support.shape[1]):
            chosen = np.flatnonzero(everything["kind"] == kind)
            chosen = chosen[np.argsort(-everything["score"][chosen], kind="stable")]
            found = everything[chosen]
            self._of_class.append(_ClassBoxes(records[chosen], found["hits"], ~found["ignored"]))

    def of(self, times: Ints) -> dict[str, float]:
        """Return average precision, that at an overlap of 0.5, average recall and loss."""
        support = times @ self._support
        figures = np.zeros((2, len(support), len(OVERLAPS)))
        for kind in np.flatnonzero(support).tolist():
            boxes = self._of_class[kind]
            weights = times[boxes.records]
            for at in range(len(OVERLAPS)):
                drawn = weights * boxes.counts[:, at]
                figures[:, kind, at] = _weighted(drawn, boxes.hits[:, at], support[kind])
        precision, recall = figures[:, support > 0]
        return {
            "average_precision": _mean(precision),
            "average_precision_50": _mean(precision[:, 0]),
            "average_recall": _mean(recall),
            "loss": float((times * self._losses).sum() / times.sum()),
        }


def _weighted(weights: Ints, hits: npt.NDArray[np.bool_], support: float) -> tuple[float, float]:
    """Return average precision and recall of boxes that count so many times each."""
    drawn = weights > 0
    return precision_and_recall(hits[drawn], int(support), weights[drawn])


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0
