"""Cut polygons off at the edges of images. Pure functions, numpy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]  # [P, 2]: y, x
Int64 = npt.NDArray[np.int64]


def cut_rings(
    points: Points, lengths: Int64, low: npt.ArrayLike = 0.0, high: npt.ArrayLike = 1.0
) -> tuple[Points, Int64]:
    """Cut rings off at the edges of rectangles (Sutherland and Hodgman 1974), all at once.

    Parts of a ring that hang together only outside are joined along the edge, where they enclose nothing. So
    the winding number of each point inside stays.

    Args:
        points: float64 [P, 2], y, x of the points, ring after ring.
        lengths: int64 [R], number of points of each ring.
        low: upper left corner of the rectangle of each ring: y, x, [R, 2] or the same for all.
        high: lower right corner, likewise.

    Returns:
        Points and lengths of the same rings. A ring that encloses nothing within its rectangle has 0 points.
    """
    of_ring = np.repeat(np.arange(len(lengths)), lengths)
    edges = [np.broadcast_to(np.asarray(edge, np.float64), (len(lengths), 2)) for edge in (low, high)]
    for axis in (0, 1):
        for edge, sign in zip(edges, (1.0, -1.0), strict=True):
            depths = sign * (points[:, axis] - edge[of_ring, axis])
            if (depths < 0).any():
                points, of_ring = _cut(points, of_ring, depths, axis, edge)
    return _with_area(points, of_ring, len(lengths))


def _cut(
    points: Points, of_ring: Int64, depths: npt.NDArray[np.float64], axis: int, edge: Points
) -> tuple[Points, Int64]:
    """Cut rings off at one edge; ``depths``: how far inside of it each point is."""
    before = _before(of_ring)
    inside = depths >= 0
    crosses = inside != inside[before]
    # From the inner end to the outer one, so that the same line is cut at the same point from both sides.
    inner, outer = (
        np.where(inside, np.arange(len(points)), before),
        np.where(inside, before, np.arange(len(points))),
    )
    share = np.divide(depths[inner], depths[inner] - depths[outer], out=np.zeros_like(depths), where=crosses)
    crossings = points[inner] + share[:, np.newaxis] * (points[outer] - points[inner])
    crossings[:, axis] = edge[of_ring, axis]
    kept = np.stack([crosses, inside], axis=1).reshape(-1)
    both = np.stack([crossings, points], axis=1).reshape(-1, 2)
    return both[kept], np.repeat(of_ring, 2)[kept]


def _before(of_ring: Int64) -> Int64:
    """Return the place of the point before each one in its ring."""
    before = np.arange(len(of_ring)) - 1
    starts = np.flatnonzero(np.diff(of_ring, prepend=-1))
    before[starts] = np.append(starts[1:], len(of_ring)) - 1
    return before


def _with_area(points: Points, of_ring: Int64, count: int) -> tuple[Points, Int64]:
    """Leave out the points of rings that are flat along one axis, or have fewer than three points."""
    low, high = np.full((count, 2), np.inf), np.full((count, 2), -np.inf)
    np.minimum.at(low, of_ring, points)
    np.maximum.at(high, of_ring, points)
    lengths = np.bincount(of_ring, minlength=count)
    lengths[(lengths < 3) | ~(high > low).all(axis=1)] = 0
    return points[lengths[of_ring] > 0], lengths.astype(np.int64)
