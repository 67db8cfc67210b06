"""Polygons of objects: rings of points, cut at the edges of images, made from masks and drawn as masks.

Points are y, x; an edge lies between two pixels, so that the first pixel reaches from 0, 0 to 1, 1. A ring is
closed from its last point to its first. A polygon covers the points around which its rings turn (a winding
number other than 0): outer rings turn one way and holes the other. Rings of many polygons are one array of
points and the number of points of each ring.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LEAST_POINTS = 3  # of a ring
_FLAT = 1e-12  # share of its square that a ring covers at most if all of its points lie on one line


def next_points(counts: Int64) -> Int64:
    """Return the number of the point behind each point in its ring: int64 [sum of counts].

    Args:
        counts: int64 [R], number of points of each ring.
    """
    following: Int64 = np.arange(1, counts.sum() + 1)
    ends = np.cumsum(counts)
    used = counts > 0
    following[ends[used] - 1] = (ends - counts)[used]
    return following


def sums_of(values: npt.NDArray[np.float64], counts: Int64) -> npt.NDArray[np.float64]:
    """Return the sum of the values of the points of each ring: float64 [R], 0 for a ring without points."""
    found = np.zeros(len(counts))
    used = counts > 0
    if used.any():
        found[used] = np.add.reduceat(values, (np.cumsum(counts) - counts)[used])
    return found


def _from_first(points: Points, counts: Int64) -> Points:
    """Return points relative to the first of their ring, which keeps sums of products exact."""
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    own: Points = points - np.repeat(points[firsts], counts[counts > 0], axis=0)
    return own


def signed_areas(points: Points, counts: Int64) -> npt.NDArray[np.float64]:
    """Return the area that each ring turns around: float64 [R] (square pixels).

    It is positive for rings that turn from y to x: down and then to the right. Where a ring crosses itself,
    areas that it turns around the other way are subtracted.

    Args:
        points: float64 [P, 2], y and x.
        counts: int64 [R], number of points of each ring.
    """
    own = _from_first(points, counts)
    after = own[next_points(counts)]
    return sums_of(own[:, 0] * after[:, 1] - own[:, 1] * after[:, 0], counts) / 2


def are_flat(points: Points, counts: Int64) -> Mask:
    """Tell which rings have all of their points on one line, or fewer than three: bool [R]."""
    own = _from_first(points, counts)
    sizes = np.maximum(counts, 1)
    own -= np.repeat(np.stack([sums_of(own[:, axis], counts) / sizes for axis in (0, 1)], 1), counts, axis=0)
    down, along = own.T
    high, wide, both = (sums_of(np.asarray(of), counts) for of in (down**2, along**2, down * along))
    return np.asarray((counts < LEAST_POINTS) | (high * wide - both * both <= _FLAT * high * wide))


def reversed_rings(points: Points, counts: Int64, chosen: Mask) -> Points:
    """Return the points of rings; the chosen rings (bool [R]) turn the other way: float64 [P, 2]."""
    ends = np.cumsum(counts)
    mirrored = np.repeat(2 * ends - counts - 1, counts) - np.arange(len(points))
    return points[np.where(np.repeat(chosen, counts), mirrored, np.arange(len(points)))]


def cut_rings(
    points: Points, counts: Int64, low: npt.ArrayLike = 0.0, high: npt.ArrayLike = 1.0
) -> tuple[Points, Int64]:
    """Cut rings off at the edges of rectangles (Sutherland and Hodgman 1974), all at once.

    A ring that leaves its rectangle and comes back runs along the edge in between, where it encloses nothing.
    So the winding number of each point inside stays.

    Args:
        points: float64 [P, 2], y and x, finite.
        counts: int64 [R], number of points of each ring.
        low: upper left corner of the rectangle of each ring: y, x, [R, 2] or the same for all.
        high: lower right corner, likewise.

    Returns:
        Points and counts of the same rings. A ring that encloses nothing within its rectangle has no points.
    """
    lows, highs = (np.broadcast_to(np.asarray(edge, np.float64), (len(counts), 2)) for edge in (low, high))
    is_in = (points >= np.repeat(lows, counts, axis=0)) & (points <= np.repeat(highs, counts, axis=0))
    leaves = sums_of(np.asarray(is_in.all(1), np.float64), counts) < counts
    crossing = np.repeat(leaves, counts)
    cut, left = points[crossing], counts[leaves]
    for axis in (0, 1):
        cut, left = _cut_at(cut, left, axis, lows[leaves, axis], 1)
        cut, left = _cut_at(cut, left, axis, highs[leaves, axis], -1)
    found = counts.copy()
    found[leaves] = left
    joined = np.empty((found.sum(), 2))
    is_cut = np.repeat(leaves, found)
    joined[is_cut], joined[~is_cut] = cut, points[~crossing]
    empty = _enclose_nothing(joined, found, lows, highs)
    return joined[np.repeat(~empty, found)], np.where(empty, 0, found)


def _cut_at(
    points: Points, counts: Int64, axis: int, line: npt.NDArray[np.float64], side: int
) -> tuple[Points, Int64]:
    """Cut each ring at its ``line``; keep the side of larger values (side 1) or of smaller ones (side -1)."""
    of_points = np.repeat(line, counts)
    depth = (points[:, axis] - of_points) * side
    following = next_points(counts)
    kept, crosses = depth >= 0, np.sign(depth) * np.sign(depth[following]) < 0
    made = kept.astype(np.int64) + crosses
    places = np.cumsum(made) - made
    found = np.empty((made.sum(), 2))
    found[places[kept]] = points[kept]
    # From the inner end to the outer one, so that the same line is cut at the same point from both sides.
    first, second = np.flatnonzero(crosses), following[crosses]
    inner, outer = np.where(kept[crosses], first, second), np.where(kept[crosses], second, first)
    share = depth[inner] / (depth[inner] - depth[outer])
    met = points[inner] + (points[outer] - points[inner]) * share[:, np.newaxis]
    met[:, axis] = of_points[crosses]
    found[places[crosses] + kept[crosses]] = met
    return found, sums_of(made.astype(np.float64), counts).astype(np.int64)


def _enclose_nothing(
    points: Points, counts: Int64, lows: npt.NDArray[np.float64], highs: npt.NDArray[np.float64]
) -> Mask:
    """Tell which rings are flat, or only run along the edges of their rectangles and not around: bool [R]."""
    after = points[next_points(counts)]
    along = np.zeros(len(points), np.bool_)
    for edges in (lows, highs):
        edge = np.repeat(edges, counts, axis=0)
        along |= ((points == edge) & (after == edge)).any(1)
    only_along = sums_of(along.astype(np.float64), counts) == counts
    is_around = np.abs(signed_areas(points, counts)) > (highs - lows).prod(1) / 2
    return np.asarray((only_along & ~is_around) | are_flat(points, counts))


def rings_of_mask(bitmap: npt.NDArray[np.generic]) -> list[Points]:
    """Return the outline of a mask along the edges of its pixels, without loss.

    Pixels that touch at a corner alone are of different rings. Outer rings have a positive area
    (``signed_areas``), holes a negative one: the middle of a pixel is inside exactly if the pixel is set.

    Args:
        bitmap: [H, W], not 0 where the object is.

    Returns:
        float64 [P, 2] each, y and x of the corners of a ring (whole numbers), in the order of their first.
    """
    is_set = np.asarray(bitmap) != 0
    rows, columns = np.flatnonzero(is_set.any(1)), np.flatnonzero(is_set.any(0))
    if not len(rows):
        return []
    first = np.array([rows[0], columns[0]], np.float64)
    around = np.pad(is_set[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], 1)
    corners, turns, following = _edges(around)
    rings, seen, after = [], np.zeros(len(corners), np.bool_).tolist(), following.tolist()
    for start in range(len(after)):
        ring, at = [], start
        while not seen[at]:
            seen[at] = True
            ring.append(at)
            at = after[at]
        if ring:
            edges = np.array(ring)
            bends = edges[turns[edges] != np.roll(turns[edges], 1)]
            rings.append(np.stack(np.divmod(corners[bends], around.shape[1]), 1) + first)
    return rings


def _edges(around: Mask) -> tuple[Int64, Int64, Int64]:
    """Return the edges of the set pixels of a mask, whose pixels at the rim are not set.

    Returns:
        Of each edge, int64 [E]: the corner where it begins (y times width, plus x), its direction (0 down, 1
        right, 2 up, 3 left; the set pixel lies on its left hand), and the number of the edge behind it.
    """
    inner, width = around[1:-1, 1:-1], around.shape[1]
    beside = (around[1:-1, :-2], around[2:, 1:-1], around[1:-1, 2:], around[:-2, 1:-1])
    begins, steps = np.array([0, width, width + 1, 1]), np.array([width, 1, -width, -1])
    exists = np.zeros((around.size, 4), np.bool_)
    for turn, other in enumerate(beside):
        rows, columns = np.nonzero(inner & ~other)
        exists[rows * width + columns + begins[turn], turn] = True
    corners, turns = np.nonzero(exists)
    ends = corners + steps[turns]
    nearer, straight = (turns + 1) % 4, turns  # where two pixels touch at a corner, stay with the same one
    behind = np.where(
        exists[ends, nearer], nearer, np.where(exists[ends, straight], straight, (turns + 3) % 4)
    )
    return corners, turns, np.searchsorted(corners * 4 + turns, ends * 4 + behind)


def fill_rings(points: Points, counts: Int64, size: tuple[int, int]) -> Mask:
    """Return the pixels whose middle a polygon covers: bool [height, width].

    A middle on an edge is covered if the polygon lies to its right, or below it: polygons that share an edge
    share no pixel. The rings that ``rings_of_mask`` returns give the mask back.

    Args:
        points: float64 [P, 2], y and x in pixels.
        counts: int64 [R], number of points of each ring.
        size: height and width (pixels).
    """
    turns = np.zeros((size[0], size[1] + 1), np.int32)
    after = points[next_points(counts)]
    # The rows whose middle each edge passes: half of them in, so that a corner counts once.
    first, last = (
        np.ceil(np.clip(edge[:, 0], 0, size[0]) - 0.5).astype(np.int64) for edge in (points, after)
    )
    passed = np.abs(last - first)
    edges = np.repeat(np.arange(len(points)), passed)
    rows = (
        np.minimum(first, last)[edges] + np.arange(len(edges)) - np.repeat(np.cumsum(passed) - passed, passed)
    )
    slope = (after[edges, 1] - points[edges, 1]) / (after[edges, 0] - points[edges, 0])
    across = points[edges, 1] + (rows + 0.5 - points[edges, 0]) * slope
    columns = np.ceil(np.clip(across, 0, size[1]) - 0.5).astype(np.int64)
    np.add.at(turns, (rows, columns), np.sign(last - first)[edges])
    return np.asarray(np.cumsum(turns[:, :-1], axis=1) != 0)
