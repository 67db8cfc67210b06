"""Key points: a regression of K points from the whole image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from shardmill.infra.format.known_features import BOX_NUMBERS, KEYPOINTS
from shardmill.training.tasks.keypoints import KeyPointsKind
from shardmill.training.tasks.task import LabelSpec, Mixed, Task

_UNIT = 0.1  # of the image's side: distances of which the loss is about 1


@dataclass(frozen=True, slots=True)
class KeyPointsTask(Task):
    """Squared distance of the annotated points. Outputs are float32 [b, 2 K], labels [b, 3 K + 4].

    An example without annotated points has the loss 0.

    Attributes:
        num_points: K.
    """

    kind = KeyPointsKind()
    score_name = "keypoint_distance"

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
        return _mean(squared / _UNIT**2, known)

    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the mean distance of the annotated points, in sides of the image: float32 [b]."""
        squared, known = self._squared(outputs, labels)
        return _mean(tf.sqrt(squared), known)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``points`` float32 [b, 2 K]: y, x of each, relative to the image that the model sees."""
        return {"points": outputs}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return what ``predictions`` does."""
        return self.predictions(outputs)

    def _squared(self, outputs: Any, labels: Any) -> tuple[Any, Any]:
        """Return the squared distance of each point, and 1 where it is annotated, else 0: [b, K] each."""
        wanted = tf.reshape(labels[:, :-BOX_NUMBERS], [-1, self.num_points, 3])
        found = tf.reshape(self.predictions(outputs)["points"], [-1, self.num_points, 2])
        squared = tf.reduce_sum(tf.square(found - wanted[..., :2]), axis=-1)
        return squared, tf.cast(wanted[..., 2] > 0, tf.float32)


def _mean(values: Any, known: Any) -> Any:
    return tf.reduce_sum(values * known, axis=-1) / tf.maximum(tf.reduce_sum(known, axis=-1), 1.0)
