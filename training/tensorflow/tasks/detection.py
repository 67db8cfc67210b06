"""Detection: the boxes and classes of any number of objects in an image.

The model gives logits of the classes and distances to four edges at each cell of its maps
(``shardmill.training.tensorflow.models.dense.detector``). ``shardmill.training.tensorflow.tasks.boxes`` says
which cell learns which object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.known_features import BOX_NUMBERS, BOXES, CROWDS, OBJECT_LABELS
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.reading.records.objects import Objects
from shardmill.training.results.metrics.detection import DetectionTally
from shardmill.training.results.predictions.detection_columns import DetectionColumns
from shardmill.training.tasks.task import LabelSpec
from shardmill.training.tensorflow.tasks.boxes.assignment import Assigned, assign
from shardmill.training.tensorflow.tasks.boxes.cells import Cells
from shardmill.training.tensorflow.tasks.boxes.decoding import decoded
from shardmill.training.tensorflow.tasks.boxes.losses import focal_losses, overlaps


@dataclass(frozen=True)
class Detection:
    """Focal loss of the classes, and generalised overlap of the boxes. Implements ``Task``.

    The loss of an image is divided by the number of its cells that learn an object, so that images count
    alike whatever they show, and a loss is a function of its example alone.

    Attributes:
        num_outputs: the number of classes, K.
        image_size: height and width of the images (pixels).
    """

    num_outputs: int
    image_size: int
    score_name = "box_overlap"

    @property
    def labels(self) -> Mapping[str, LabelSpec]:
        """The objects, by the names of their parts; see ``shardmill.training.reading.records``."""
        return {
            "boxes": LabelSpec(BOXES, (None, BOX_NUMBERS), "float32", "boxes"),
            "classes": LabelSpec(OBJECT_LABELS, (None,), "int32", "boxes"),
            "crowds": LabelSpec(CROWDS, (None,), "bool", "boxes"),
        }

    @cached_property
    def cells(self) -> Cells:
        """The cells of the model's maps."""
        return Cells(self.image_size)

    def training_losses(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Examples are never mixed."""
        assert own_share is None, "settings that mix examples are refused"
        return self.losses(outputs, labels)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the loss of each example: float32 [b]."""
        assigned = assign(Objects(**labels), self.cells)
        is_object = tf.cast(assigned.is_object, tf.float32)
        wanted = tf.one_hot(assigned.classes, self.num_outputs) * is_object[..., tf.newaxis]
        focal = tf.reduce_sum(focal_losses(outputs[..., : self.num_outputs], wanted), axis=-1)
        focal = tf.where(assigned.is_ignored, 0.0, focal)
        _, generalised = self._overlaps(outputs, assigned)
        apart = (1.0 - generalised) * is_object
        count = tf.maximum(tf.reduce_sum(is_object, axis=-1), 1.0)
        return (tf.reduce_sum(focal, axis=-1) + tf.reduce_sum(apart, axis=-1)) / count

    def scores(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return how well cells with an object predict its box, the mean overlap: float32 [b].

        An image without objects counts 1.
        """
        assigned = assign(Objects(**labels), self.cells)
        ratio, _ = self._overlaps(outputs, assigned)
        is_object = tf.cast(assigned.is_object, tf.float32)
        count = tf.reduce_sum(is_object, axis=-1)
        mean = tf.reduce_sum(ratio * is_object, axis=-1) / tf.maximum(count, 1.0)
        return tf.where(count > 0, mean, 1.0)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``boxes`` [b, 100, 4], ``scores`` and ``classes`` [b, 100], the surest first."""
        return decoded(outputs, self.cells, self.num_outputs)

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return what ``predictions`` does."""
        return self.predictions(outputs)

    def form_measure(self) -> None:
        """Return None: other forms of the model are not offered."""

    def tally(self) -> DetectionTally:
        """Return an empty tally."""
        return DetectionTally(self.num_outputs)

    def columns(self) -> DetectionColumns:
        """Return the columns of a file of predictions."""
        return DetectionColumns()

    def _overlaps(self, outputs: Any, assigned: Assigned) -> tuple[Any, Any]:
        return overlaps(self.cells.boxes(outputs[..., self.num_outputs :]), assigned.boxes)


def build(version: DatasetVersion, config: TrainConfig) -> Detection:
    """Make the task of a dataset version."""
    return Detection(len(version.manifest.classes), image_size_of(config))
