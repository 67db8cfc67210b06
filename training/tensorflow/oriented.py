"""Oriented detection: each box is a parallelogram, which a turned rectangle is in a squeezed image.

The two edges of a parallelogram are the columns of a matrix, which is a symmetric stretch times a turn. The
stretch makes a Gaussian as wide as the box, and turns by a quarter change neither that nor four times the
angle of the turn. So no number that the model predicts jumps where a box looks the same again, as angles and
sides do. Gaussians are compared by ProbIoU (Llerena et al.: Gaussian bounding boxes and probabilistic
intersection-over-union for object detection, 2021); alone it could not tell how a square is turned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from shardmill.infra.format.known_features import CORNER_NUMBERS, CORNERS
from shardmill.training.tasks.detection import OrientedKind
from shardmill.training.tasks.task import LabelSpec
from shardmill.training.tensorflow.detection import LEAST_SCORE, MOST_BOXES, Detection
from shardmill.training.tensorflow.detector_cells import Assigned, Cells

_SAME_OBJECT = 0.65  # similarity of Gaussians, about that of boxes that overlap by 0.6
_MOST_CANDIDATES = 500
_LARGEST_LOGARITHM = 8.0  # of sides in strides
_LONGEST = 2.5  # half the logarithm of the longest side over the shortest: 148 times as long
_FIRST_SIDE = math.log(4.0)  # of a prediction of zeros, in strides
_THINNEST = 1e-7  # square of the width of a line, relative to the image
_EPSILON = 1e-9


class Gaussians(NamedTuple):
    """Parallelograms as Gaussians: numbers [...] each.

    Attributes:
        y, x: the centre.
        yy, yx, xx: twelve times the covariance.
        logarithm: that of the determinant of these.
    """

    y: Any
    x: Any
    yy: Any
    yx: Any
    xx: Any
    logarithm: Any


def gaussians(corners: Any) -> tuple[Gaussians, Any]:
    """Return boxes as Gaussians, and cosine and sine of four times their turn: [..., 8] -> [..., 2]."""
    points = tf.reshape(corners, tf.concat([tf.shape(corners)[:-1], [4, 2]], axis=0))
    first, second, third, fourth = tf.unstack(points, axis=-2)
    one, other = (second - first + third - fourth) / 2.0, (fourth - first + third - second) / 2.0
    (a, c), (b, d) = tf.unstack(one, axis=-1), tf.unstack(other, axis=-1)
    turns_back = a * d < b * c  # a mirrored box: the other edge comes first
    a, b = tf.where(turns_back, b, a), tf.where(turns_back, a, b)
    c, d = tf.where(turns_back, d, c), tf.where(turns_back, c, d)
    yy, yx, xx = a * a + b * b, a * c + b * d, c * c + d * d
    determinant = tf.square(a * d - b * c) + _THINNEST * (yy + xx + _THINNEST)
    yy, xx = yy + _THINNEST, xx + _THINNEST
    y, x = tf.unstack(tf.reduce_mean(points, axis=-2), axis=-1)
    cosine, sine = a + d, c - b  # of the turn, times their length
    for _ in range(2):  # twice the angle, and twice again
        cosine, sine = cosine * cosine - sine * sine, 2.0 * cosine * sine
        length = tf.maximum(tf.sqrt(cosine * cosine + sine * sine), 1e-30)
        cosine, sine = cosine / length, sine / length
    return Gaussians(y, x, yy, yx, xx, tf.math.log(determinant)), tf.stack([cosine, sine], axis=-1)


def similarity(one: Gaussians, other: Gaussians) -> Any:
    """Return ProbIoU, 1 minus the distance of Hellinger: from 0, far apart, to 1, the same."""
    yy, yx, xx = ((own + its) / 2.0 for own, its in zip(one[2:5], other[2:5], strict=True))
    determinant = tf.maximum(yy * xx - yx * yx, _THINNEST**2)
    y, x = one.y - other.y, one.x - other.x
    apart = 1.5 * (xx * y * y - 2.0 * yx * y * x + yy * x * x) / determinant
    spread = tf.math.log(determinant) / 2.0 - (one.logarithm + other.logarithm) / 4.0
    return 1.0 - tf.sqrt(1.0 - tf.exp(-tf.maximum(apart + spread, 0.0)) + _EPSILON)


class Predicted(NamedTuple):
    """Boxes that cells predict.

    Attributes:
        boxes: as Gaussians [b, L].
        turn: float32 [b, L, 2], cosine and sine of four times their turn, of any length.
        corners: float32 [b, L, 8].
    """

    boxes: Gaussians
    turn: Any
    corners: Any


def predicted(numbers: Any, cells: Cells) -> Predicted:
    """Decode the numbers of cells.

    Args:
        numbers: float32 [b, L, 7]: y and x of the centre from that of the cell, in strides; the logarithm of
            the mean side in strides, over the first one; half that of the ratio of the sides, times cosine
            and sine of twice the angle of the long one; cosine and sine of four times the turn.
        cells: the cells of the model's maps.
    """
    down, along, size, straight, slanted, *turn = tf.unstack(numbers, axis=-1)
    stride = cells.stride_of / cells.image_size
    y, x = cells.centres[:, 0] + down * stride, cells.centres[:, 1] + along * stride
    size = tf.minimum(size + _FIRST_SIDE, _LARGEST_LOGARITHM) + tf.math.log(stride)
    ratio = tf.sqrt(straight * straight + slanted * slanted + 1e-12)
    straight, slanted = straight / ratio, slanted / ratio
    ratio = tf.minimum(ratio, _LONGEST)

    def stretched(times: float) -> tuple[Any, Any, Any]:
        """Return a power of the stretch, a symmetric matrix."""
        side, even, odd = tf.exp(times * size), tf.cosh(times * ratio), tf.sinh(times * ratio)
        return side * (even + odd * straight), side * odd * slanted, side * (even - odd * straight)

    yy, yx, xx = stretched(1.0)
    angle = tf.atan2(turn[1], turn[0]) / 4.0
    cosine, sine = tf.cos(angle), tf.sin(angle)
    # Half the edges: the columns of the stretch times the turn.
    one = (yy * cosine + yx * sine) / 2.0, (yx * cosine + xx * sine) / 2.0
    other = (yx * cosine - yy * sine) / 2.0, (xx * cosine - yx * sine) / 2.0
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    corners = [at + s * u + t * v for s, t in signs for at, u, v in zip((y, x), one, other, strict=True)]
    boxes = Gaussians(y, x, *stretched(2.0), 4.0 * size)
    return Predicted(boxes, tf.stack(turn, axis=-1), tf.stack(corners, axis=-1))


@dataclass(frozen=True)
class OrientedDetection(Detection):
    """Focal loss of the classes, dissimilarity of the boxes, and squared error of their turns."""

    kind = OrientedKind()
    score_name = "box_similarity"

    @property
    def labels(self) -> Mapping[str, LabelSpec]:
        """The objects, by the names of their parts; boxes are four corners."""
        return {**super().labels, "boxes": LabelSpec(CORNERS, (None, CORNER_NUMBERS), "float32")}

    def compared(self, outputs: Any, assigned: Assigned) -> tuple[Any, Any]:
        """Return the similarity of boxes with those of the objects, and their loss: [b, L] each."""
        found = predicted(outputs[..., self.num_outputs :], self.cells)
        wanted, turn = gaussians(assigned.boxes)
        alike = similarity(found.boxes, wanted)
        return alike, 1.0 - alike + tf.reduce_sum(tf.square(found.turn - turn), axis=-1) / 2.0

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``boxes`` [b, 100, 8], ``scores`` and ``classes`` [b, 100], the surest first."""
        found = predicted(outputs[..., self.num_outputs :], self.cells)
        every = tf.sigmoid(outputs[..., : self.num_outputs])
        flat = tf.reshape(every, [-1, every.shape[1] * self.num_outputs])
        scores, chosen = tf.math.top_k(flat, min(_MOST_CANDIDATES, flat.shape[1]))
        cell, classes = chosen // self.num_outputs, chosen % self.num_outputs
        boxes = Gaussians(*(tf.gather(part, cell, batch_dims=1) for part in found.boxes))
        kept = tf.map_fn(
            lambda image: _kept(Gaussians(*image[0]), *image[1:]),
            (tuple(boxes), scores, classes),
            fn_output_signature=tf.TensorSpec([MOST_BOXES], tf.int32),
        )
        is_box, kept = kept >= 0, tf.maximum(kept, 0)
        corners = tf.gather(found.corners, tf.gather(cell, kept, batch_dims=1), batch_dims=1)
        return {
            "boxes": tf.where(is_box[..., tf.newaxis], corners, 0.0),
            "scores": tf.where(is_box, tf.gather(scores, kept, batch_dims=1), 0.0),
            "classes": tf.where(is_box, tf.gather(classes, kept, batch_dims=1), -1),
        }


def _kept(boxes: Gaussians, scores: Any, classes: Any) -> Any:
    """Return the numbers of the surest boxes of an image, one for each object; -1 behind: int32 [100]."""
    one = Gaussians(*(part[:, tf.newaxis] for part in boxes))
    alike = tf.where(classes[:, tf.newaxis] == classes, similarity(one, boxes), 0.0)
    kept = tf.image.non_max_suppression_overlaps(alike, scores, MOST_BOXES, _SAME_OBJECT, LEAST_SCORE)
    return tf.pad(kept, [[0, MOST_BOXES - tf.size(kept)]], constant_values=-1)
