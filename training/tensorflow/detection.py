"""Detection: the boxes and classes of any number of objects in an image.

The model gives logits of the classes and distances to four edges at each cell of its maps
(``shardmill.training.tensorflow.models.detector``). ``shardmill.training.tensorflow.detector_cells``
says which cell learns which object. Boxes are rows of top, left, bottom and right edge, relative to the
image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from shardmill.infra.format.known_features import BOX_NUMBERS, BOXES, CROWDS, OBJECT_LABELS
from shardmill.training.reading.records.annotations import Objects, covers_all
from shardmill.training.tasks.detection import DetectionKind
from shardmill.training.tasks.task import LabelSpec, Mixed, Task
from shardmill.training.tensorflow.detector_cells import Assigned, Cells, assign

MOST_BOXES = 100  # most boxes an image, as in COCO's evaluation
LEAST_SCORE = 0.05
_SAME_OBJECT = 0.6  # boxes of one class that overlap by more are of the same object
_MOST_CANDIDATES = 1000
_FOCUS, _OBJECT_SHARE = 2.0, 0.25  # gamma and alpha of the paper
_EPSILON = 1e-9


@dataclass(frozen=True)
class Detection(Task):
    """Focal loss of the classes, and generalised overlap of the boxes.

    The loss of an image is divided by the number of its cells that learn an object, so that images count
    alike whatever they show, and a loss is a function of its example alone.

    Attributes:
        num_outputs: the number of classes, K.
        image_size: height and width of the images (pixels).
    """

    kind = DetectionKind()
    score_name = "box_overlap"

    num_outputs: int
    image_size: int

    @property
    def labels(self) -> Mapping[str, LabelSpec]:
        """The objects, by the names of their parts; see ``shardmill.training.reading.records``."""
        return {
            "boxes": LabelSpec(BOXES, (None, BOX_NUMBERS), "float32"),
            "classes": LabelSpec(OBJECT_LABELS, (None,), "int32"),
            "crowds": LabelSpec(CROWDS, (None,), "bool"),
        }

    @cached_property
    def cells(self) -> Cells:
        """The cells of the model's maps."""
        return Cells(self.image_size)

    def training_losses(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Examples are never mixed."""
        assert mixed is None, "settings that mix examples are refused"
        return self.losses(outputs, labels)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the loss of each example: float32 [b]."""
        assigned = assign(Objects(**labels), self.cells)
        is_object = tf.cast(assigned.is_object, tf.float32)
        wanted = tf.one_hot(assigned.classes, self.num_outputs) * is_object[..., tf.newaxis]
        of_classes = focal_losses(outputs[..., : self.num_outputs], wanted)
        is_unknown = self._unknown(labels)[:, tf.newaxis] & (wanted < 0.5)
        focal = tf.reduce_sum(tf.where(is_unknown, 0.0, of_classes), axis=-1)
        focal = tf.where(assigned.is_ignored, 0.0, focal)
        apart = self.compared(outputs, assigned)[1] * is_object
        count = tf.maximum(tf.reduce_sum(is_object, axis=-1), 1.0)
        return (tf.reduce_sum(focal, axis=-1) + tf.reduce_sum(apart, axis=-1)) / count

    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return how well cells with an object predict its box, the mean overlap: float32 [b].

        An image without objects counts 1.
        """
        assigned = assign(Objects(**labels), self.cells)
        ratio, _ = self.compared(outputs, assigned)
        is_object = tf.cast(assigned.is_object, tf.float32)
        count = tf.reduce_sum(is_object, axis=-1)
        mean = tf.reduce_sum(ratio * is_object, axis=-1) / tf.maximum(count, 1.0)
        return tf.where(count > 0, mean, 1.0)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``boxes`` [b, 100, 4], ``scores`` and ``classes`` [b, 100], the surest first."""
        return _decoded(outputs, self.cells, self.num_outputs)

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return what ``predictions`` does."""
        return self.predictions(outputs)

    def compared(self, outputs: Any, assigned: Assigned) -> tuple[Any, Any]:
        """Return how much boxes overlap with those of the objects, and their loss: [b, L] each."""
        found = self.cells.boxes(outputs[..., self.num_outputs :])
        ratio, generalised = overlaps(found, assigned.boxes)
        return ratio, 1.0 - generalised

    def _unknown(self, labels: Any) -> Any:
        """Return the classes with a crowd over the whole image, which no cell learns: bool [b, K]."""
        is_whole = labels["crowds"] & covers_all(labels["boxes"])
        classes = tf.one_hot(
            tf.where(is_whole, labels["classes"], -1), self.num_outputs, on_value=True, off_value=False
        )
        return tf.reduce_any(classes, axis=1)


def _decoded(outputs: Any, cells: Cells, num_classes: int) -> dict[str, Any]:
    """Return the boxes of each image, the surest first.

    Args:
        outputs: float32 [b, L, K + 4], of a detector.
        cells: number of cells of its maps.
        num_classes: K.

    Returns:
        ``boxes`` float32 [b, 100, 4], clipped to the image; ``scores`` float32 [b, 100], 0 to 1; ``classes``
        int32 [b, 100], -1 behind the last box.
    """
    scores, boxes = tf.sigmoid(outputs[..., :num_classes]), cells.boxes(outputs[..., num_classes:])
    candidates = min(_MOST_CANDIDATES, len(cells.centres))
    _, chosen = tf.math.top_k(tf.reduce_max(scores, axis=-1), candidates)
    found = tf.image.combined_non_max_suppression(
        tf.gather(boxes, chosen, batch_dims=1)[:, :, tf.newaxis],
        tf.gather(scores, chosen, batch_dims=1),
        max_output_size_per_class=MOST_BOXES,
        max_total_size=MOST_BOXES,
        iou_threshold=_SAME_OBJECT,
        score_threshold=LEAST_SCORE,
        clip_boxes=True,
    )
    is_box = tf.range(MOST_BOXES) < found.valid_detections[:, tf.newaxis]
    classes = tf.where(is_box, tf.cast(found.nmsed_classes, tf.int32), -1)
    return {"boxes": found.nmsed_boxes, "scores": found.nmsed_scores, "classes": classes}


def focal_losses(logits: Any, targets: Any) -> Any:
    """Return the focal loss of each logit (Lin et al.: Focal loss for dense object detection, 2017).

    Args:
        logits: float32, of any shape.
        targets: float32, 0 or 1, of the same shape.
    """
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
    probability = tf.sigmoid(logits)
    miss = targets * (1.0 - probability) + (1.0 - targets) * probability
    share = targets * _OBJECT_SHARE + (1.0 - targets) * (1.0 - _OBJECT_SHARE)
    return share * tf.pow(miss, _FOCUS) * entropy


def overlaps(boxes: Any, others: Any) -> tuple[Any, Any]:
    """Return how much pairs of boxes overlap: intersection over union, and its generalised form.

    The generalised form also tells boxes that do not meet how far apart they are (Rezatofighi et al.:
    Generalized intersection over union, 2019): from -1, far apart, to 1, the same.

    Args:
        boxes: float32 [..., 4].
        others: float32 [..., 4].
    """
    top_left = tf.maximum(boxes[..., :2], others[..., :2])
    bottom_right = tf.minimum(boxes[..., 2:], others[..., 2:])
    shared = _area(top_left, bottom_right)
    union = _area(boxes[..., :2], boxes[..., 2:]) + _area(others[..., :2], others[..., 2:]) - shared
    around = _area(tf.minimum(boxes[..., :2], others[..., :2]), tf.maximum(boxes[..., 2:], others[..., 2:]))
    ratio = shared / tf.maximum(union, _EPSILON)
    return ratio, ratio - (around - union) / tf.maximum(around, _EPSILON)


def _area(top_left: Any, bottom_right: Any) -> Any:
    return tf.reduce_prod(tf.maximum(bottom_right - top_left, 0.0), axis=-1)
