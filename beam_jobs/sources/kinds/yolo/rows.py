"""The rows of label files: a class, and numbers relative to the upright image.

========  ====================================================================================
numbers   what they are
========  ====================================================================================
4         a box: middle (x, y), width and height
8         the corners of an oriented box, or an outline of four points: the task tells which
6, 10, …  x and y of the points of an outline
4 + K n   a box, and K key points of n numbers each: x, y and (n = 3) 0, 1 or 2 (not annotated,
          hidden, visible); ``kpt_shape`` gives K and n, and there are no other rows then
========  ====================================================================================

What is out of range follows ``verify_image_label`` of the package ultralytics: a row may reach over the edges
of its image by a hundredth. There a bad row costs the whole image, here only its object.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.sources.annotations.collecting import Box
from shardmill.beam_jobs.sources.annotations.shapes import Shape, points_of
from shardmill.infra.format.known_features import POINT_NUMBERS

NOT_NUMBERS = "that are not rows of finite numbers"
WRONG_LENGTH = "with a wrong number of values"
NO_CLASS = "whose class is no whole number"
BEYOND = "beyond their image by more than a hundredth"
NO_VISIBILITY = "whose key points have another visibility than 0, 1 and 2"
REPEATED = "that repeat an earlier row of their file"

_BOX, _QUAD, _LEAST_OUTLINE = 4, 8, 6  # numbers of a row behind its class
_OVER = 0.01  # that a row may reach over the edges
_HIGHEST_CLASS = 1 << 31


@dataclass(slots=True)
class LabelFile:
    """The rows of a label file.

    Attributes:
        numbers: number of each good row in the file, from 1.
        classes: number of the class of each of these rows.
        values: the numbers behind it.
        faults: (number of a row, why it is no good).
    """

    numbers: list[int] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    values: list[array[float]] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)

    def rows(self) -> Iterator[tuple[int, int, array[float]]]:
        """Number, class and values of each good row."""
        return zip(self.numbers, self.classes, self.values, strict=True)


@dataclass(frozen=True, slots=True)
class Form:
    """What the numbers of rows are.

    Attributes:
        num_points: key points of each object; 0 if there are none.
        per_point: numbers of a key point, 2 or 3.
        has_corners: whether eight numbers are the corners of an oriented box; else they are an outline.
    """

    num_points: int = 0
    per_point: int = 3
    has_corners: bool = False

    def takes(self, length: int) -> bool:
        """Tell whether a row may have so many numbers behind its class."""
        if self.num_points:
            return length == _BOX + self.num_points * self.per_point
        if self.has_corners:
            return length in (_BOX, _QUAD)
        return length == _BOX or (length >= _LEAST_OUTLINE and length % 2 == 0)


def parse_rows(text: str) -> LabelFile:
    """Parse a label file; a row that is repeated counts once."""
    found = LabelFile()
    seen: set[tuple[int, bytes]] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not (words := line.split()):
            continue
        try:
            values = array("d", map(float, words))
        except ValueError:
            values = array("d", [math.nan])
        if not all(map(math.isfinite, values)):
            found.faults.append((number, NOT_NUMBERS))
        elif not (values[0].is_integer() and 0 <= values[0] < _HIGHEST_CLASS):
            found.faults.append((number, NO_CLASS))
        elif (row := (int(values[0]), array("f", values).tobytes())) in seen:
            found.faults.append((number, REPEATED))
        else:
            seen.add(row)
            found.numbers.append(number)
            found.classes.append(row[0])
            found.values.append(values[1:])
    return found


def object_of(values: Sequence[float], form: Form) -> tuple[Box, Shape | None] | str:
    """Return the box of a row and its further shape, or why it is no good."""
    if not form.takes(len(values)):
        return WRONG_LENGTH
    shape, outer = None, np.empty((0, POINT_NUMBERS))
    if len(values) == _BOX or form.num_points:
        middle_x, middle_y, width, height = values[:_BOX]
        if form.num_points:
            numbers = np.array(values[_BOX:]).reshape(form.num_points, form.per_point)
            seen = _visibility(numbers)
            if not np.isin(seen, (0, 1, 2)).all():
                return NO_VISIBILITY
            outer, points = numbers[seen > 0, :POINT_NUMBERS], numbers[:, 1::-1]
            shape = Shape(keypoints=points, visibility=seen.astype(np.int64).tolist())
    else:
        points = points_of(values)
        if not len(points):  # a number is far too large
            return BEYOND
        shape = Shape(corners=points) if form.has_corners else Shape(rings=[points])
        (top, left), (bottom, right) = points.min(0).tolist(), points.max(0).tolist()
        middle_x, middle_y, width, height = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
    where = [middle_x, middle_y, width, height, *outer.ravel().tolist()]
    if max(where) > 1 + _OVER or min(where) < -_OVER or width < 0 or height < 0:
        return BEYOND
    box = middle_y - height / 2, middle_x - width / 2, middle_y + height / 2, middle_x + width / 2
    return box, shape


def _visibility(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the visibility of key points: [K] of [K, 2 or 3].

    Without a third number those at 0, 0 or with a negative number are not annotated.
    """
    if numbers.shape[1] > POINT_NUMBERS:
        return numbers[:, POINT_NUMBERS]
    return np.where((numbers >= 0).all(1) & (numbers != 0).any(1), 2.0, 0.0)


def lengths_tell(files: Iterable[LabelFile]) -> bool | None:
    """Tell whether some row can only be an outline; None if no row has eight numbers."""
    lengths = {len(values) for file in files for values in file.values}
    if _QUAD not in lengths:
        return None
    return any(length != _QUAD and length >= _LEAST_OUTLINE and length % 2 == 0 for length in lengths)
