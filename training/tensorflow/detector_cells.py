"""The cells of a detector's maps, and the objects that they learn. Pure TensorFlow functions.

An object belongs to one map: the finest one where its longer side is at most eight cells, as in FCOS (Tian
et al. 2019). There it takes the cell that its centre is in, and those of the eight around it whose centres
lie in its box. Where objects want the same cell, the smaller one has it. All other cells are background,
except below boxes around groups of objects (crowds): they learn nothing.

The work grows with the number of objects, not with objects times cells, so that images may be crowded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.format.known_features import BOX_NUMBERS
from shardmill.training.models.spec import STRIDES
from shardmill.training.reading.records.annotations import Objects, covers_all

# Distances up to e^8 strides: beyond any image, and far from overflowing.
_LARGEST_LOGARITHM = 8.0


@dataclass(frozen=True)
class Cells:
    """The cells of all maps, row by row, the finest map first; L in number.

    Attributes:
        image_size: height and width of the images (pixels), a multiple of the largest stride.
        strides: pixels of the image per cell, of each map.
    """

    image_size: int
    strides: tuple[int, ...] = STRIDES

    @cached_property
    def sides(self) -> tuple[int, ...]:
        """Rows, and columns, of each map."""
        return tuple(self.image_size // stride for stride in self.strides)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of the first cell of each map."""
        ends = np.cumsum([side * side for side in self.sides]).tolist()
        return (0, *ends[:-1])

    @cached_property
    def stride_of(self) -> npt.NDArray[np.float32]:
        """The stride of each cell (pixels): float32 [L]."""
        counts = [side * side for side in self.sides]
        return np.repeat(np.array(self.strides, np.float32), counts)

    @cached_property
    def centres(self) -> npt.NDArray[np.float32]:
        """The centre of each cell, relative to the image: y, x, float32 [L, 2]."""
        maps = []
        for side in self.sides:
            middles = (np.arange(side, dtype=np.float32) + 0.5) / side
            rows, columns = np.meshgrid(middles, middles, indexing="ij")
            maps.append(np.stack([rows.ravel(), columns.ravel()], axis=1))
        return np.concatenate(maps)

    def boxes(self, distances: Any) -> Any:
        """Return the boxes that cells predict: float32 [b, L, 4].

        Args:
            distances: float32 [b, L, 4], from the centre to the top, left, bottom and right edge, as
                logarithms, in strides.
        """
        relative = (self.stride_of / self.image_size)[:, np.newaxis]
        lengths = tf.exp(tf.minimum(distances, _LARGEST_LOGARITHM)) * relative
        return tf.concat([self.centres - lengths[..., :2], self.centres + lengths[..., 2:]], axis=-1)


_MOST_CELLS_OF_A_SIDE = 8
_AROUND = [(row, column) for row in (0, -1, 1) for column in (0, -1, 1)]  # the centre comes first


class Assigned(NamedTuple):
    """What each cell learns.

    Attributes:
        is_object: bool [b, L], cells that learn an object.
        is_ignored: bool [b, L], cells that learn nothing: below a crowd that is smaller than the image.
        boxes: float32 [b, L, 4 or 8], of the objects.
        classes: int32 [b, L], of the objects; any elsewhere.
    """

    is_object: Any
    is_ignored: Any
    boxes: Any
    classes: Any


def assign(objects: Objects, cells: Cells) -> Assigned:
    """Assign the objects of each image to cells."""
    boxes, classes = objects.boxes, objects.classes
    is_real = (classes >= 0) & ~objects.crowds
    edges, sides = _edges_and_sides(boxes)
    # Objects get ranks from 1 on, larger ones for smaller objects, so that the greatest rank has the cell.
    sequence = tf.argsort(tf.reduce_prod(sides, axis=-1), direction="DESCENDING", stable=True)
    ranks = tf.argsort(sequence, stable=True) + 1
    wanted, may_have = _wanted(boxes, edges, sides, cells)
    ranks = tf.where(may_have & is_real[..., tf.newaxis], ranks[..., tf.newaxis], 0)
    best = _best_rank(wanted, ranks, len(cells.centres))
    owners = tf.gather(sequence, tf.maximum(best - 1, 0), batch_dims=1)
    is_object = best > 0
    return Assigned(
        is_object,
        _below_crowds(objects, edges, cells) & ~is_object,
        tf.gather(boxes, owners, batch_dims=1),
        tf.gather(classes, owners, batch_dims=1),
    )


def _edges_and_sides(boxes: Any) -> tuple[Any, Any]:
    """Return the edges of boxes, or around oriented ones [b, M, 4], and the lengths of sides [b, M, 2]."""
    if boxes.shape[-1] == BOX_NUMBERS:
        return boxes, boxes[..., 2:] - boxes[..., :2]
    points = _corners(boxes)
    around = tf.concat([tf.reduce_min(points, axis=-2), tf.reduce_max(points, axis=-2)], axis=-1)
    return around, tf.norm(points[..., 1:3, :] - points[..., 0:2, :], axis=-1)


def _corners(boxes: Any) -> Any:
    return tf.reshape(boxes, tf.concat([tf.shape(boxes)[:2], [4, 2]], axis=0))


def _are_inside(places: Any, boxes: Any) -> Any:
    """Tell which places lie in the box of their object: float32 [b, M, 9, 2] -> bool [b, M, 9]."""
    if boxes.shape[-1] == BOX_NUMBERS:
        edges = boxes[..., tf.newaxis, :]
        return tf.reduce_all((places > edges[..., :2]) & (places < edges[..., 2:]), axis=-1)
    points = _corners(boxes)
    along = (tf.roll(points, -1, axis=-2) - points)[:, :, tf.newaxis]
    to = places[..., tf.newaxis, :] - points[:, :, tf.newaxis]
    beside = along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0]
    return tf.reduce_all(beside > 0, axis=-1) | tf.reduce_all(beside < 0, axis=-1)


def _wanted(boxes: Any, edges: Any, sides: Any, cells: Cells) -> tuple[Any, Any]:
    """Return the cells that objects want: their numbers int32 [b, M, 9], and bool, which of them count."""
    longest = tf.reduce_max(sides, axis=-1) * cells.image_size
    limits = [float(_MOST_CELLS_OF_A_SIDE * stride) for stride in cells.strides[:-1]]
    level = tf.add_n([tf.cast(longest > limit, tf.int32) for limit in limits])
    side = tf.gather(tf.constant(cells.sides), level)[..., tf.newaxis]
    centre = (edges[..., :2] + edges[..., 2:]) / 2.0
    middle = tf.cast(tf.floor(centre * tf.cast(side, tf.float32)), tf.int32)
    middle = tf.clip_by_value(middle, 0, side - 1)
    found = middle[..., tf.newaxis, :] + tf.constant(_AROUND)  # [b, M, 9, y and x]
    centres = (tf.cast(found, tf.float32) + 0.5) / tf.cast(side[..., tf.newaxis], tf.float32)
    inside = _are_inside(centres, boxes)
    in_map = tf.reduce_all((found >= 0) & (found < side[..., tf.newaxis]), axis=-1)
    is_middle = tf.constant([place == (0, 0) for place in _AROUND])
    numbers = (
        tf.gather(tf.constant(cells.starts), level)[..., tf.newaxis] + found[..., 0] * side + found[..., 1]
    )
    return numbers, in_map & (inside | is_middle)


def _best_rank(wanted: Any, ranks: Any, num_cells: int) -> Any:
    """Return the greatest rank that wants each cell, 0 where none does: int32 [b, L]."""
    rows = tf.shape(wanted)[0]
    first = tf.range(rows)[:, tf.newaxis, tf.newaxis] * num_cells
    places = tf.where(ranks > 0, wanted + first, 0)
    best = tf.tensor_scatter_nd_max(
        tf.zeros([rows * num_cells], tf.int32), tf.reshape(places, [-1, 1]), tf.reshape(ranks, [-1])
    )
    return tf.reshape(best, [rows, num_cells])


def _below_crowds(objects: Objects, edges: Any, cells: Cells) -> Any:
    """Return the cells whose centres lie between the edges of a crowd: bool [b, L]."""
    is_crowd = objects.crowds & (objects.classes >= 0) & ~covers_all(objects.boxes)
    is_crowd = is_crowd[..., tf.newaxis]
    maps = []
    for side in cells.sides:
        middles = (tf.range(side, dtype=tf.float32) + 0.5) / side
        rows, columns = (
            tf.cast(
                is_crowd
                & (middles > edges[..., axis, tf.newaxis])
                & (middles < edges[..., axis + 2, tf.newaxis]),
                tf.float32,
            )
            for axis in (0, 1)
        )
        counts = tf.matmul(rows, columns, transpose_a=True)
        maps.append(tf.reshape(counts > 0.5, [-1, side * side]))
    return tf.concat(maps, axis=1)
