"""The shapes of objects as columns of a listing (shardmill.infra.format.known_features), a row an image.

A source has polygons, key points or oriented boxes if one of its objects has. Then all of its images have the
features of that shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.sources.annotations.shapes import FLAT_RING, Shapes
from shardmill.beam_jobs.tables.columns import lengths_of, lists_of
from shardmill.infra.codecs.polygons import are_flat, reversed_rings, signed_areas
from shardmill.infra.format.features import Feature, KeyPoints
from shardmill.infra.format.known_features import (
    CORNER_FEATURE,
    CORNER_NUMBERS,
    POINT_NUMBERS,
    POLYGON_FEATURES,
    keypoint_features,
)

CORNERS_OF_BOX = (0, 1, 0, 3, 2, 3, 2, 1)  # numbers of a box that its corners in turn have

Points = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def shape_features(
    shapes: Shapes, boxes: Floats, names: Sequence[str], order: Int64, lengths: Int64
) -> list[tuple[Feature, pa.Array]]:
    """Return the shapes of objects as columns of a listing: a row for each image.

    Parts of polygons turn one way then. Rings without area are left out, and counted in ``shapes``.

    Args:
        shapes: of the objects of all annotations.
        boxes: float64 [N, 4], box of each of these objects.
        names: class of each, as annotated.
        order: int64 [M], the objects that stay, image by image.
        lengths: int64 [rows], number of objects of each image.
    """
    columns: list[tuple[Feature, pa.Array]] = []
    if shapes.ring_points:
        found = polygon_columns(polygons_of(shapes, len(names), order), lengths)
        columns += zip(POLYGON_FEATURES, found, strict=True)
    if shapes.keypoints:
        chosen = _shape_of(shapes, len(names))[order]
        columns += _keypoints(shapes, np.array(names)[order], chosen, lengths)
    if shapes.corners:
        corners = boxes[:, CORNERS_OF_BOX]
        with_corners = np.array(shapes.of_object, np.int64)[np.array(shapes.has_corners, np.bool_)]
        corners[with_corners] = np.array(shapes.corners, np.float64).reshape(-1, CORNER_NUMBERS)
        columns.append((CORNER_FEATURE, lists_of_rows(corners[order].astype(np.float32), lengths)))
    return columns


def polygons_of(shapes: Shapes, count: int, order: Int64) -> pa.ListArray:
    """Return the rings (``nested_rings``) of the objects at ``order`` (int64 [M]) of ``count`` objects."""
    return _polygons(shapes).take(pa.array(_shape_of(shapes, count)[order]))


def _shape_of(shapes: Shapes, count: int) -> Int64:
    """Return the number of the shape of each object, one behind the last if it has none: int64 [count]."""
    found = np.full(count, len(shapes.of_object), np.int64)
    found[np.array(shapes.of_object, np.int64)] = np.arange(len(shapes.of_object))
    return found


def nested_rings(points: Points, counts: Int64, rings: Int64) -> pa.ListArray:
    """Return the rings of each object as a list of lists of numbers.

    Args:
        points: float64 [P, 2], y and x.
        counts: int64 [R], number of points of each ring.
        rings: int64 [N], number of rings of each object.
    """
    of_rings = lists_of(pa.array(points.astype(np.float32).reshape(-1)), counts * POINT_NUMBERS)
    return lists_of(of_rings, rings)


def polygon_columns(nested: pa.ListArray, lengths: Int64) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the columns of POLYGON_FEATURES, a row for each image.

    Args:
        nested: the rings of each object (``nested_rings``), image by image.
        lengths: int64 [rows], number of objects of each image.
    """
    rings, of_rings = lengths_of(nested), nested.flatten()
    numbers = lengths_of(of_rings)
    of_row = np.repeat(np.arange(len(lengths)), lengths)
    rings_of_row = _counted(of_row, rings, len(lengths))
    numbers_of_row = _counted(np.repeat(of_row, rings), numbers, len(lengths))
    return (
        lists_of(of_rings.flatten(), numbers_of_row),
        lists_of(pa.array(numbers // POINT_NUMBERS), rings_of_row),
        lists_of(pa.array(rings), lengths),
    )


def lists_of_rows(values: npt.NDArray[np.generic], lengths: Int64) -> pa.ListArray:
    """Return a list for each image with the numbers of its objects: [M, numbers] of M objects."""
    return lists_of(pa.array(values.reshape(-1)), lengths * int(np.prod(values.shape[1:])))


def _counted(of_row: Int64, values: Int64, rows: int) -> Int64:
    """Return the sum of the values of each row: int64 [rows]."""
    return np.bincount(of_row, values, rows).astype(np.int64)


def _polygons(shapes: Shapes) -> pa.ListArray:
    """Return the rings of each shape (``nested_rings``), and an empty list behind them."""
    points = np.frombuffer(shapes.points, np.float64).reshape(-1, POINT_NUMBERS)
    counts, rings = np.array(shapes.ring_points, np.int64), np.array(shapes.rings, np.int64)
    ends = np.cumsum(counts)
    is_closed = (points[ends - counts] == points[ends - 1]).all(1)  # its first point is repeated
    if is_closed.any():
        points, counts = np.delete(points, ends[is_closed] - 1, axis=0), counts - is_closed
    may_turn = np.repeat(~np.array(shapes.have_holes, np.bool_), rings)
    points = reversed_rings(points, counts, may_turn & (signed_areas(points, counts) < 0))
    flat = are_flat(points, counts)
    shapes.lose(FLAT_RING, int(np.count_nonzero(flat)), None)
    of_shape = np.repeat(np.arange(len(rings)), rings)
    kept = np.bincount(of_shape[~flat], minlength=len(rings) + 1)
    if flat.any():
        points, counts = points[np.repeat(~flat, counts)], counts[~flat]
    return nested_rings(points, counts, kept)


def _keypoints(
    shapes: Shapes, names: npt.NDArray[np.str_], chosen: Int64, lengths: Int64
) -> list[tuple[Feature, pa.Array]]:
    """Return the columns of key points: those of all classes, and of each object those of its class."""
    every = _points_of_all(shapes.key_points)
    number = {name: at for at, name in enumerate(every.names)}
    counts = np.array([*shapes.num_keypoints, 0], np.int64)
    starts = (np.cumsum(counts) - counts)[chosen]
    points = np.array(shapes.keypoints, np.float64).reshape(-1, POINT_NUMBERS)
    visibility = np.array(shapes.visibility, np.int64)
    placed = np.zeros((len(chosen), len(every.names), POINT_NUMBERS), np.float32)
    seen = np.zeros((len(chosen), len(every.names)), np.int64)
    for name, own in shapes.key_points.items():
        rows = np.flatnonzero((names == name) & (counts[chosen] > 0))[:, np.newaxis]
        taken = starts[rows] + np.arange(len(own.names))
        columns = [number[point] for point in own.names]
        placed[rows, columns], seen[rows, columns] = points[taken], visibility[taken]
    features = keypoint_features(every)
    return [(features[0], lists_of_rows(placed, lengths)), (features[1], lists_of_rows(seen, lengths))]


def _points_of_all(known: Mapping[str, KeyPoints]) -> KeyPoints:
    """Return the key points of all classes, each name once, in the order in which they were named."""
    names = tuple(dict.fromkeys(name for points in known.values() for name in points.names))
    number = {name: at for at, name in enumerate(names)}
    joined = dict.fromkeys(
        (number[points.names[one]], number[points.names[other]])
        for points in known.values()
        for one, other in points.skeleton
    )
    return KeyPoints(names=names, skeleton=tuple(joined), partners=_partners_of_all(known, names))


def _partners_of_all(known: Mapping[str, KeyPoints], names: Sequence[str]) -> tuple[int, ...] | None:
    """Return the partners of all points; None if those of a class are unknown, or classes contradict."""
    partners: dict[str, str] = {}
    for points in known.values():
        if points.partners is None:
            return None
        for name, at in zip(points.names, points.partners, strict=True):
            if partners.setdefault(name, points.names[at]) != points.names[at]:
                return None
    return tuple(names.index(partners[name]) for name in names)
