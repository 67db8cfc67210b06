"""Match the boxes that a model found in an image with those of its objects, as COCO's evaluation does.

The rules are those of ``pycocotools`` (Lin et al.: Microsoft COCO, 2014): the surest box goes first, and
takes the free object of its class that it overlaps most. A box that meets no free object may lie in a crowd,
which takes any number of boxes; such boxes are neither right nor wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.format.known_features import CORNER_NUMBERS
from shardmill.training.arrays import Floats

# A box is right if it overlaps its object by at least this much: intersection over union.
OVERLAPS = np.linspace(0.5, 0.95, 10)

Bools = npt.NDArray[np.bool_]
Boxes = npt.NDArray[Any]


def match_boxes(found: Boxes, wanted: Boxes, crowds: Bools) -> tuple[Bools, Bools]:
    """Match boxes of one class in one image.

    Args:
        found: [n, 4], the boxes of the model, the surest first; [n, 8]: oriented ones, parallelograms.
        wanted: [m, 4], the boxes of the objects; [m, 8]: four corners each.
        crowds: bool [m], which of them are around groups of objects.

    Returns:
        bool [n, 10] each: the boxes that are right at each of ``OVERLAPS``, and those that do not count.
    """
    shape = (len(found), len(OVERLAPS))
    hits, ignored = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    if not len(found) or not len(wanted):
        return hits, ignored
    overlaps = box_overlaps(found, wanted, crowds)
    least = np.minimum(OVERLAPS, 1 - 1e-10)
    objects = overlaps[:, ~crowds]
    in_crowd = overlaps[:, crowds].max(axis=1, initial=0.0)[:, np.newaxis] >= least
    is_free = np.ones((len(OVERLAPS), objects.shape[1]), np.bool_)
    every = np.arange(len(OVERLAPS))
    for number, row in enumerate(objects):
        if row.size:
            meets = np.where(is_free & (row >= least[:, np.newaxis]), row, -1.0)
            best = row.size - 1 - meets[:, ::-1].argmax(axis=1)  # the last of equal ones
            hits[number] = meets[every, best] >= 0.0
            is_free[every[hits[number]], best[hits[number]]] = False
        ignored[number] = ~hits[number] & in_crowd[number]
    return hits, ignored


def box_overlaps(found: Boxes, wanted: Boxes, crowds: Bools) -> Floats:
    """Return how much each pair of boxes overlaps: float64 [n, m].

    It is the intersection over the union; in a crowd, over the area of the found box.
    """
    if found.shape[1] == CORNER_NUMBERS:
        shared, own, others = _oriented(found, wanted)
        return _ratios(shared, own, others, crowds)
    one, other = found[:, np.newaxis].astype(np.float64), wanted[np.newaxis].astype(np.float64)
    top_left = np.maximum(one[..., :2], other[..., :2])
    bottom_right = np.minimum(one[..., 2:], other[..., 2:])
    shared = np.prod(np.clip(bottom_right - top_left, 0.0, None), axis=-1)
    own = np.prod(one[..., 2:] - one[..., :2], axis=-1)
    return _ratios(shared, own, np.prod(other[..., 2:] - other[..., :2], axis=-1), crowds)


def _ratios(shared: Floats, own: Floats, others: Floats, crowds: Bools) -> Floats:
    whole = np.where(crowds, own, own + others - shared)
    ratios: Floats = np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0)
    return ratios


def _oriented(found: Boxes, wanted: Boxes) -> tuple[Floats, Floats, Floats]:
    """Return the area that parallelograms share with quadrilaterals [n, m], and the areas [n, 1] and [1, m].

    A quadrilateral is cut off at the edges of the unit square, which a parallelogram is where two of its
    edges are the unit vectors. A box with numbers that are not finite has no area.
    """
    from shardmill.infra.codecs.polygons import cut_rings, signed_areas  # loads codecs: for these boxes alone

    one, other = (
        np.where(np.isfinite(boxes).all(axis=1, keepdims=True), boxes, 0.0)
        .astype(np.float64)
        .reshape(-1, 4, 2)
        for boxes in (found, wanted)
    )
    counts = np.full(len(other), 4)
    areas = np.abs(signed_areas(other.reshape(-1, 2), counts))
    frames = np.stack([one[:, 1] - one[:, 0], one[:, 3] - one[:, 0]], axis=2)
    own = np.abs(np.linalg.det(frames))
    starts, ends = one.min(axis=1)[:, np.newaxis], one.max(axis=1)[:, np.newaxis]
    meet = ((starts < other.max(axis=1)) & (other.min(axis=1) < ends)).all(axis=2)
    meet &= (own > 0)[:, np.newaxis] & (areas > 0)
    rows, columns = np.nonzero(meet)
    inside = np.linalg.solve(frames[rows], (other[columns] - one[rows, :1]).transpose(0, 2, 1))
    points = np.asarray(inside.transpose(0, 2, 1).reshape(-1, 2), np.float64)
    cut, left = cut_rings(points, counts[columns])
    shared = np.zeros(meet.shape)
    shared[rows, columns] = np.abs(signed_areas(cut, left)) * own[rows]
    return shared, own[:, np.newaxis], areas[np.newaxis]
