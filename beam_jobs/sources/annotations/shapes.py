"""The shapes that objects have beside their boxes, as annotation files give them: checked and collected."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.masks import decode_mask
from shardmill.infra.codecs.polygons import rings_of_mask
from shardmill.infra.format.features import KeyPoints
from shardmill.infra.format.known_features import CORNER_NUMBERS, POINT_NUMBERS

# Why a shape of an object is not in its record.
BAD_RING = "rings of polygons without three points of two numbers"
FLAT_RING = "rings of polygons without an area"
BAD_POINTS = "lists of key points without two numbers, and 0, 1 or 2, for each name"
NO_POINT_NAMES = "lists of key points of a class whose points have no names"
BAD_CORNERS = "oriented boxes without four corners of two numbers"

MOST_MASK_PIXELS = 1 << 28  # of the mask of an object or of a whole image
LARGEST = 1e9  # number of a box or point (pixels); a whole number of JSON may be too large for a float
_NOT_ANNOTATED, _VISIBLE = 0, 2

Points = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What an object has beside its box, in the unit of the boxes. What it lacks keeps its default.

    Points are y, x: float64 [N, 2], as ``points_of`` returns them from x, y. 0, 0 is the outer corner of the
    first pixel: its middle is 0.5, 0.5. Shapes that are broken are counted and left out.

    Attributes:
        rings: the points of each ring of its polygon, whether or not the first is repeated at the end.
        has_holes: rings turn as they should: outer ones one way, holes the other (``rings_of_mask``). Else
            each is a part of the object, whichever way it turns.
        keypoints: of each point that ``Annotations.name_points`` names for its class: float64 [K, 2].
        visibility: K numbers: 0 not annotated (whatever y, x are), 1 hidden, 2 visible; None: all visible.
        corners: of an oriented box, in turn: float64 [4, 2].
    """

    rings: Sequence[Points] = ()
    has_holes: bool = False
    keypoints: Points | None = None
    visibility: Sequence[int] | None = None
    corners: Points | None = None


def points_of(values: object) -> Points:
    """Return points that a source gives as x, y: float64 [N, 2] of y, x.

    Args:
        values: list of numbers, x, y, x, y, ..., or list of pairs.

    Returns:
        No points if it is something else, or a number is not finite or too large.
    """
    numbers = numbers_of(values, POINT_NUMBERS)
    usable = np.isfinite(numbers).all() and (np.abs(numbers) < LARGEST).all()
    return numbers[:, ::-1] if usable else numbers[:0]


def keypoints_of(values: object) -> tuple[Points, list[int]]:
    """Return key points that a source gives as x, y, visibility: float64 [K, 2] of y, x, and K numbers.

    Args:
        values: list of numbers, x, y, v, x, y, v, ..., or list of lists of three.

    Returns:
        No points if it is something else, or a visibility is not 0, 1 or 2.
    """
    numbers = numbers_of(values, POINT_NUMBERS + 1)
    if not np.isin(numbers[:, 2], (0, 1, 2)).all():
        numbers = numbers[:0]
    return numbers[:, 1::-1], numbers[:, 2].astype(np.int64).tolist()


def numbers_of(values: object, width: int) -> Floats:
    """Return a list of numbers, or of lists of ``width`` numbers, as float64 [N, width]; else N is 0."""
    none = np.empty((0, width))
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str | bytes):
        return none
    try:
        found = np.array(values)
    except (ValueError, OverflowError):  # lists of different lengths
        return none
    is_listed = found.ndim == 1 and not found.size % width
    if found.dtype.kind not in "iuf" or not (is_listed or (found.ndim == 2 and found.shape[1] == width)):
        return none
    return found.astype(np.float64).reshape(-1, width)


def rings_of_file(data: bytes) -> tuple[list[Points], tuple[int, int]]:
    """Return the outline of an encoded mask, not 0 where the object is, and its height and width (pixels).

    Raises:
        ImageRejected: it is none that is read.
    """
    samples, _ = decode_mask(data, MOST_MASK_PIXELS, in_color=False)
    height, width = samples.shape[:2]
    return rings_of_mask((samples != 0).any(2)), (height, width)


@dataclass
class Shapes:
    """The shapes of objects, in the order in which they were added.

    Attributes:
        of_object: number of the object of each shape, rising.
        rings, have_holes: of each shape: number of rings, and whether they turn as they should.
        ring_points, points: number of points of each ring, and y, x of each point.
        num_keypoints: number of key points of each shape.
        keypoints, visibility: y, x of each key point, and its visibility.
        has_corners, corners: whether each shape has corners, and eight numbers of each that has.
        key_points: class -> its key points.
        lost: why -> number of shapes that are left out.
        first: why -> object of the first of them, for people, where the kind of source tells it.
    """

    of_object: array[int] = field(default_factory=lambda: array("q"))
    rings: array[int] = field(default_factory=lambda: array("q"))
    have_holes: array[int] = field(default_factory=lambda: array("b"))
    ring_points: array[int] = field(default_factory=lambda: array("q"))
    points: array[float] = field(default_factory=lambda: array("d"))
    num_keypoints: array[int] = field(default_factory=lambda: array("q"))
    keypoints: array[float] = field(default_factory=lambda: array("d"))
    visibility: array[int] = field(default_factory=lambda: array("q"))
    has_corners: array[int] = field(default_factory=lambda: array("b"))
    corners: array[float] = field(default_factory=lambda: array("d"))
    key_points: dict[str, KeyPoints] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def sound(self, shape: Shape, name: str, who: str | None) -> Shape:
        """Return the parts of a shape that can be stored, and count the others.

        Args:
            shape: the shape of an object.
            name: class of the object.
            who: the object, for people.
        """
        rings = [ring for ring in shape.rings if _are_points(ring, least=3)]
        self.lose(BAD_RING, len(shape.rings) - len(rings), who)
        keypoints, visibility, corners = shape.keypoints, shape.visibility, shape.corners
        if keypoints is not None:
            visibility = [_VISIBLE] * len(keypoints) if visibility is None else visibility
            named = self.key_points.get(name)
            why = NO_POINT_NAMES if named is None else BAD_POINTS
            if named is None or not _are_key_points(keypoints, visibility, len(named.names)):
                self.lose(why, 1, who)
                keypoints = visibility = None
        if corners is not None and not (_are_points(corners) and len(corners) == CORNER_NUMBERS // 2):
            self.lose(BAD_CORNERS, 1, who)
            corners = None
        return Shape(rings, shape.has_holes, keypoints, visibility, corners)

    def add(self, number: int, shape: Shape) -> None:
        """Add the shape of an object; ``shape`` is sound."""
        self.of_object.append(number)
        self.rings.append(len(shape.rings))
        self.have_holes.append(shape.has_holes)
        for ring in shape.rings:
            self.ring_points.append(len(ring))
            self.points.frombytes(np.ascontiguousarray(ring).tobytes())
        if shape.keypoints is not None and shape.visibility is not None:
            seen = np.array(shape.visibility)[:, np.newaxis] != _NOT_ANNOTATED
            self.keypoints.frombytes(np.where(seen, shape.keypoints, 0.0).tobytes())
            self.visibility.extend(shape.visibility)
        self.num_keypoints.append(0 if shape.keypoints is None else len(shape.keypoints))
        self.has_corners.append(shape.corners is not None)
        if shape.corners is not None:
            self.corners.frombytes(np.ascontiguousarray(shape.corners).tobytes())

    def lose(self, why: str, count: int, who: str | None) -> None:
        """Count shapes that are left out; ``who`` names the object of the first."""
        if count:
            self.lost[why] += count
            if who is not None:
                self.first.setdefault(why, who)


def box_around(shape: Shape) -> tuple[float, float, float, float] | None:
    """Return the box around the polygon, else the corners, else the annotated key points, else None."""
    points = None
    if shape.rings:
        points = np.concatenate(shape.rings)
    elif shape.corners is not None:
        points = shape.corners
    elif shape.keypoints is not None and shape.visibility is not None:
        points = shape.keypoints[np.array(shape.visibility) != _NOT_ANNOTATED]
    if points is None or not len(points):
        return None
    (top, left), (bottom, right) = points.min(0).tolist(), points.max(0).tolist()
    return top, left, bottom, right


def _are_points(points: Points, least: int = 1) -> bool:
    return (
        points.ndim == 2
        and points.shape[1] == POINT_NUMBERS
        and len(points) >= least
        and bool((np.abs(points) < LARGEST).all())  # not so for numbers that are none
    )


def _are_key_points(points: Points, visibility: Sequence[int], count: int) -> bool:
    if len(points) != count or len(visibility) != count or not {*visibility} <= {0, 1, 2}:
        return False
    annotated = points[np.array(visibility) != _NOT_ANNOTATED]
    return not len(annotated) or _are_points(annotated)
