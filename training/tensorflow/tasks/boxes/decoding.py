"""Turn what a detector gives at its cells into a short list of boxes. Pure TensorFlow functions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.training.tensorflow.tasks.boxes.cells import Cells

MOST_BOXES = 100  # most boxes an image, as in COCO's evaluation
LEAST_SCORE = 0.05
_SAME_OBJECT = 0.6  # boxes of one class that overlap by more are of the same object
_MOST_CANDIDATES = 1000


def decoded(outputs: Any, cells: Cells, num_classes: int) -> dict[str, Any]:
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
