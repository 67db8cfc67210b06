"""Key points: where the K points of the only object of an image are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.codecs import Pixels
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import BOX_NUMBERS, KEYPOINTS, key_points
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.evaluation import Evaluation, Rows
from shardmill.training.metrics.keypoints import (
    KeyPointsEvaluation,
    KeyPointsTally,
    measured,
    parts_of,
    resampled,
)
from shardmill.training.reading.records.annotations import LoneObjects
from shardmill.training.tasks.annotated import Annotation
from shardmill.training.tasks.arrow_lists import NUMBERS, lists_of, numbers_of
from shardmill.training.tasks.kind import Decisions, TaskKind
from shardmill.training.tasks.task import FormMeasure, LabelSpec, Mixed, Operations, Task, Values

_UNIT = 0.1  # of the image's side: distances of which the loss is about 1
_CLOSE = 0.01  # of the side: two models agree where all points are as near
_WHITE, _RED, _RADIUS = (255, 255, 255), (230, 40, 40), 3


class KeyPointsKind(TaskKind):
    """Key points of the only object of each image."""

    learned = "keypoints"
    evaluation = KeyPointsEvaluation
    settings = frozenset({"objects"})
    output = "points"
    decisions = Decisions("points", {}, lambda _names, _values: {}, "points", "{:.2f}")
    fields = {  # noqa: RUF012  never changed
        "label": NUMBERS,  # y, x and visibility of each point, and the edges of the box
        "predicted": NUMBERS,  # y, x of each point
    }
    compared = ("label", "predicted")
    is_exact = False

    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> Task:
        """Make the task of a dataset version.

        Raises:
            UsageError: its objects have no key points.
        """
        points = key_points(version.manifest.extra_features)
        if points is None:
            raise UsageError(
                f"data.objects = 'keypoints', and the objects of {version.ref} have no key points"
                f"{f' alike: {differing}' if (differing := version.why_not_joined(KEYPOINTS)) else ''}",
                "leave it out: the detector learns boxes",
            )
        return KeyPointsTask(operations, len(points.names))

    def objects(self, version: DatasetVersion, split: str) -> LoneObjects:
        """Load the objects of a split, one an image.

        Raises:
            DataError: an image has none, or several.
        """
        return LoneObjects.load(version, split)

    def described(self, version: DatasetVersion) -> dict[str, Any]:
        """Return the names of the key points."""
        points = key_points(version.manifest.extra_features)
        return {"keypoints": [] if points is None else list(points.names)}

    def tally(self, num_names: int) -> KeyPointsTally:
        """Return an empty tally."""
        return KeyPointsTally()

    def resampled(self, labels: Any, rows: Rows, num_names: int) -> Callable[[Ints], Evaluation]:
        """Return a function that evaluates records, each counted so many times."""
        return resampled(labels, rows)

    def arrays(self, _names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels [n, 3 K + 4] and ``points`` [n, 2 K]."""
        return [lists_of(labels), lists_of(rows["points"])]

    def read(self, _names: list[str], table: pa.Table) -> tuple[npt.NDArray[Any], Rows]:
        """Return labels and ``points`` again, as ``arrays`` took them, with ``losses``."""
        rows = {"losses": table["loss"].to_numpy(), "points": numbers_of(table["predicted"])}
        return numbers_of(table["label"]), rows

    def wrong(self, labels: npt.NDArray[Any], rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which examples have an annotated point that is not found near by: bool [n]."""
        found = measured(labels, rows["points"])
        return np.asarray(found[:, 1] < found[:, 0])

    def label_words(self, names: Sequence[str], labels: Any, row: int) -> str:
        """Return how many points are annotated."""
        return f"{int(parts_of(labels[row : row + 1])[1].sum())} key points"

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return how far the points are, in words that fit below a picture."""
        return f"{rows['points'].shape[1] // 2} key points (red)"

    def annotation(
        self, num_classes: int, labels: Any, rows: Rows, row: int, *, is_whole: bool = True
    ) -> AnnotatedPoints:
        """Return the annotated points, and those that were found, to draw."""
        (points,), (known,), _ = parts_of(labels[row : row + 1])
        return AnnotatedPoints(points[known], rows["points"][row].reshape(-1, 2)[known])


class PointsMeasure(FormMeasure):
    """Places of points, relative to the image."""

    output_name = "points"
    score_name = "keypoint_similarity"

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return COCO's similarity of each example: [b]."""
        return measured(labels, values)[:, 3]

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where all points are near each other: bool [b]."""
        return np.asarray((self.differences(values, others) < _CLOSE).all(axis=1))


@dataclass(frozen=True, slots=True)
class KeyPointsTask(Task):
    """Squared distance of the annotated points. Outputs are float32 [b, 2 K], labels [b, 3 K + 4].

    An example without annotated points has the loss 0.

    Attributes:
        ops: the operations of the framework.
        num_points: K.
    """

    kind = KeyPointsKind()
    score_name = "keypoint_distance"

    ops: Operations
    num_points: int

    @property
    def num_outputs(self) -> int:
        """Two for each point."""
        return 2 * self.num_points

    @property
    def labels(self) -> LabelSpec:
        """The points: y, x and visibility each, and the box; relative to the image that the model sees."""
        return LabelSpec(KEYPOINTS, (3 * self.num_points + BOX_NUMBERS,), "float32")

    def training_losses(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Examples are never mixed."""
        assert mixed is None, "settings that mix examples are refused"
        return self.losses(outputs, labels)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the mean squared distance of the annotated points, in tenths of the side: float32 [b]."""
        squared, known = self._squared(outputs, labels)
        return self._mean(squared / _UNIT**2, known)

    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the mean distance of the annotated points, in sides of the image: float32 [b]."""
        squared, known = self._squared(outputs, labels)
        return self._mean(squared**0.5, known)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``points`` float32 [b, 2 K]: y, x of each, relative to the image that the model sees."""
        return {"points": outputs}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return what ``predictions`` does."""
        return self.predictions(outputs)

    def form_measure(self) -> PointsMeasure:
        """Return how exported forms are compared with the model."""
        return PointsMeasure()

    def _squared(self, outputs: Any, labels: Any) -> tuple[Any, Any]:
        """Return the squared distance of each point, and 1 where it is annotated, else 0: [b, K] each."""
        y, x, seen = (labels[:, at:-BOX_NUMBERS:3] for at in range(3))
        squared = (outputs[:, ::2] - y) ** 2 + (outputs[:, 1::2] - x) ** 2
        return squared, self.ops.cast(seen > 0, "float32")

    def _mean(self, values: Any, known: Any) -> Any:
        share = self.ops.mean(known)
        return self.ops.mean(values * known) / self.ops.where(share > 0, share, 1.0)


@dataclass(frozen=True, slots=True)
class AnnotatedPoints(Annotation):
    """Key points.

    Attributes:
        points, found: those of the object, and where they were found: [K, 2], y and x relative to the image.
    """

    points: npt.NDArray[Any]
    found: npt.NDArray[Any]

    def drawn(self, pixels: Pixels) -> Pixels:
        """Draw the points of the object in white, and those that were found in red."""
        drawn = np.array(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
        for points, color in ((self.points, _WHITE), (self.found, _RED)):
            for y, x in np.clip(points, -1, 2).tolist():
                at = int(x * drawn.shape[1]), int(y * drawn.shape[0])
                cv2.circle(drawn, at, _RADIUS, color, cv2.FILLED)
        return drawn
