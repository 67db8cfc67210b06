"""The figures of key points: how near the points that a model finds are to those of an object.

An example is a row of 3 K + 4 numbers: y, x and visibility of each of its K points, and the four edges of its
box; all relative to the square that the model sees. Points that are not annotated do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.format.known_features import BOX_NUMBERS
from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.evaluation import LOSS, Evaluation, Figure, Rows, Tally

NEAR = 0.1  # a point within this share of the longer side of its box counts as found
SIGMA = (
    0.05  # of every point in the similarity of key points; COCO's are 0.025 to 0.107 by the part of a body
)


@dataclass(frozen=True, slots=True)
class KeyPointsEvaluation(Evaluation):
    """The result of evaluating a model of key points on a split.

    Attributes:
        found: share of the annotated points that are near.
        error: mean distance of annotated points, in shares of the longer side of their box.
        similarity: mean of COCO's similarity of key points over the examples with annotated points.
        loss: mean of the examples' losses.
        num_examples: evaluated images.
    """

    task = "keypoints"
    FIGURES = (
        Figure(
            "correct_keypoints", "key points found",
            "share of the annotated points that are found within a tenth of the longer side of their box",
            lambda result: result.found, is_share=True,
        ),
        Figure(
            "keypoint_similarity", "key point similarity",
            "COCO's object keypoint similarity with 0.05 for each point, mean over the images",
            lambda result: result.similarity, is_share=True,
        ),
        Figure(
            "keypoint_error", "key point error",
            "mean distance of annotated points, in shares of the longer side of their box",
            lambda result: result.error, falls=True,
        ),
        LOSS,
    )  # fmt: skip

    found: float
    error: float
    similarity: float
    loss: float
    num_examples: int

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""
        return {**self.figures(), "num_examples": self.num_examples}


def parts_of(labels: npt.NDArray[Any]) -> tuple[Floats, npt.NDArray[np.bool_], Floats]:
    """Return points [n, K, 2], which are annotated [n, K], and boxes [n, 4] of labels [n, 3 K + 4]."""
    points = labels[:, :-BOX_NUMBERS].astype(np.float64).reshape(len(labels), -1, 3)
    return points[..., :2], points[..., 2] > 0, labels[:, -BOX_NUMBERS:].astype(np.float64)


def measured(labels: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> Floats:
    """Measure examples, n of them.

    Args:
        labels: [n, 3 K + 4].
        predicted: [n, 2 K], y and x of each point.

    Returns:
        float64 [n, 5]: number of annotated points, how many of them are near, sum of their errors, COCO's
        similarity, and whether there are any.
    """
    points, known, boxes = parts_of(labels)
    sides = boxes[:, 2:] - boxes[:, :2]
    longest = np.maximum(sides.max(axis=1, initial=0), np.finfo(np.float32).tiny)[:, np.newaxis]
    apart = np.linalg.norm(predicted.astype(np.float64).reshape(points.shape) - points, axis=-1)
    errors = apart / longest
    count = known.sum(axis=1)
    # Lin et al. 2014, as in pycocotools: exp(-d² / (2 area (2 sigma)²)).
    area = np.maximum(sides.prod(axis=1), np.finfo(np.float32).tiny)[:, np.newaxis]
    similar = np.exp(-np.square(apart) / (2 * area * np.square(2 * SIGMA)))
    columns = (
        count,
        (known & (errors <= NEAR)).sum(axis=1),
        np.where(known, errors, 0).sum(axis=1),
        np.where(known, similar, 0).sum(axis=1) / np.maximum(count, 1),
        count > 0,
    )
    return np.stack(columns, axis=1).astype(np.float64)


def _evaluation(sums: Floats, loss: float, num_examples: int) -> KeyPointsEvaluation:
    points, near, error, similarity, examples = sums.tolist()
    return KeyPointsEvaluation(
        near / max(points, 1), error / max(points, 1), similarity / max(examples, 1), loss, num_examples
    )


class KeyPointsTally(Tally):
    """Sums up the measures of examples."""

    def __init__(self) -> None:
        self._sums = np.zeros(5)
        self._loss_sum = 0.0
        self._num_examples = 0

    def add(self, labels: npt.NDArray[Any], rows: Rows) -> None:
        """Count examples: labels [n, 3 K + 4], ``points`` [n, 2 K] and ``losses`` [n]."""
        self._sums += measured(labels, rows["points"]).sum(axis=0)
        self._loss_sum += float(rows["losses"].astype(np.float64).sum())
        self._num_examples += len(labels)

    def evaluation(self) -> KeyPointsEvaluation:
        """Return the figures of all examples so far."""
        return _evaluation(self._sums, self._loss_sum / max(self._num_examples, 1), self._num_examples)


def resampled(labels: npt.NDArray[Any], rows: Rows) -> Callable[[Ints], KeyPointsEvaluation]:
    """Return a function that evaluates N records, each counted so many times: int64 [N]."""
    columns, losses = measured(labels, rows["points"]), rows["losses"].astype(np.float64)

    def evaluated(times: Ints) -> KeyPointsEvaluation:
        total = int(times.sum())
        return _evaluation(times @ columns, float(times @ losses) / max(total, 1), total)

    return evaluated
