"""Losses of a detector, for each image by itself. Pure TensorFlow functions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_FOCUS, _OBJECT_SHARE = 2.0, 0.25  # gamma and alpha of the paper
_EPSILON = 1e-9


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
