"""The objects of an image, drawn: boxes, polygons, oriented boxes, and key points with their skeleton."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.masks import class_colors
from shardmill.infra.format.features import KeyPoints
from shardmill.infra.format.known_features import (
    BOX_NUMBERS,
    BOXES,
    CORNER_NUMBERS,
    CORNERS,
    KEYPOINTS,
    OBJECT_LABELS,
    POLYGONS,
    RING_POINTS,
    RINGS,
    VISIBILITY,
)

Array = npt.NDArray[Any]
Boxes = Sequence[Sequence[float]]

NO_CLASS: Final = -1
DRAWN: Final = (
    BOXES,
    OBJECT_LABELS,
    POLYGONS,
    RING_POINTS,
    RINGS,
    KEYPOINTS,
    VISIBILITY,
    CORNERS,
)  # features
_NONE = np.zeros((0, 1, 2))
_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)
_RADIUS, _VISIBLE = 2, 2  # pixels of a key point; visibility of one that is not hidden


@dataclass(frozen=True, slots=True)
class Outlines:
    """The objects of an image: n of them, or none of a shape that is not known.

    Attributes:
        classes: int64 [n]; -1 where it is not known.
        boxes: [n, 4], four edges relative to the image.
        rings: the rings of each object: [P, 2] each, y and x relative to the image.
        corners: [n, 4, 2], likewise.
        points: [n, K, 2], likewise.
        visibility: [n, K].
        skeleton: pairs of points that lines join.
    """

    classes: Array
    boxes: Array
    rings: Sequence[Sequence[Array]]
    corners: Array
    points: Array
    visibility: Array
    skeleton: Sequence[tuple[int, int]] = ()

    @classmethod
    def of(cls, found: Mapping[str, Array], known: KeyPoints | None) -> Outlines:
        """Find the objects of an image.

        Args:
            found: the features among ``DRAWN`` that it has, each a list of numbers.
            known: the key points of the dataset.
        """
        boxes = found.get(BOXES, _NONE).reshape(-1, BOX_NUMBERS)
        corners = found.get(CORNERS, _NONE).reshape(-1, CORNER_NUMBERS // 2, 2)
        rings = _rings(found) if {POLYGONS, RING_POINTS, RINGS} <= found.keys() else []
        points, seen = _points(found, known) if {KEYPOINTS, VISIBILITY} <= found.keys() else (_NONE, _NONE)
        count = max(map(len, (boxes, corners, rings, points)))
        return cls(
            found[OBJECT_LABELS].astype(np.int64) if OBJECT_LABELS in found else np.full(count, NO_CLASS),
            boxes, rings, corners, points, seen, known.skeleton if known is not None else (),
        )  # fmt: skip

    def drawn(self, pixels: Pixels) -> Pixels:
        """Draw them, each in the colour of its class: uint8 [h, w, 3]. A box stands for no other outline."""
        colors = class_colors(max(self.classes.tolist(), default=0) + 1).tolist()
        lines = [self._lines(at) for at in range(len(self.classes))]
        boxes = [(box, at) for at, box in enumerate(self.boxes.tolist()) if not self._closed(at)]
        drawn = with_boxes(pixels, [box for box, _ in boxes], _WHITE, 3)
        for own in lines:
            _draw(drawn, own, _WHITE, 3)
        for box, at in boxes:
            drawn = with_boxes(drawn, [box], self._color(colors, at))
        for at, own in enumerate(lines):
            _draw(drawn, own, self._color(colors, at), 1)
        for at in range(len(self.points)):
            self._draw_points(drawn, at, self._color(colors, at))
        return drawn

    def _color(self, colors: Sequence[Sequence[int]], at: int) -> Sequence[int]:
        return colors[self.classes[at]] if self.classes[at] >= 0 else _BLACK

    def _closed(self, at: int) -> list[Array]:
        """Return the outlines of an object besides its box."""
        return [*(self.rings[at] if at < len(self.rings) else ()), *self.corners[at : at + 1]]

    def _lines(self, at: int) -> list[tuple[Array, bool]]:
        """Return the lines of an object, and whether they are closed."""
        found = [(outline, True) for outline in self._closed(at)]
        for points, visibility in zip(self.points[at : at + 1], self.visibility[at : at + 1], strict=True):
            pairs = [[*pair] for pair in self.skeleton if (visibility[[*pair]] > 0).all()]
            found += [(points[pair], False) for pair in pairs]
        return found

    def _draw_points(self, drawn: Pixels, at: int, color: Sequence[int]) -> None:
        """Draw the key points of an object: filled if they are visible, rings if they are hidden."""
        for (x, y), seen in zip(_places(self.points[at], drawn).tolist(), self.visibility[at], strict=True):
            if seen:
                cv2.circle(drawn, (x, y), _RADIUS + 1, _WHITE, cv2.FILLED)
                cv2.circle(drawn, (x, y), _RADIUS, color, cv2.FILLED if seen == _VISIBLE else 1)


def _rings(found: Mapping[str, Array]) -> list[list[Array]]:
    """Return the rings of each object."""
    ends = np.cumsum(found[RING_POINTS].astype(np.int64))
    rings = iter(np.split(found[POLYGONS].reshape(-1, 2), ends)[: len(ends)])
    return [[next(rings) for _ in range(count)] for count in found[RINGS].astype(np.int64).tolist()]


def _points(found: Mapping[str, Array], known: KeyPoints | None) -> tuple[Array, Array]:
    """Return the key points and their visibility; those of one object if nothing tells how many it has."""
    count = len(known.names) if known is not None else max(found[VISIBILITY].size, 1)
    return found[KEYPOINTS].reshape(-1, count, 2), found[VISIBILITY].reshape(-1, count)


def _places(points: Array, pixels: Pixels) -> Array:
    """Return the pixels in which points lie: int32 [P, 2], x and y."""
    return np.asarray(np.floor(points[:, ::-1] * pixels.shape[1::-1]), np.int32)


def _draw(pixels: Pixels, lines: Sequence[tuple[Array, bool]], color: Sequence[int], thickness: int) -> None:
    for points, is_closed in lines:
        cv2.polylines(pixels, [_places(points, pixels)], is_closed, color, thickness)


def with_boxes(pixels: Pixels, boxes: Boxes, colour: Sequence[int], thickness: int = 1) -> Pixels:
    """Draw boxes with lines of some pixels: uint8 [h, w, 3].

    Each box is four edges relative to the image, or y and x of four corners.
    """
    drawn = np.array(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
    height, width = drawn.shape[:2]
    for box in boxes:
        if len(box) == CORNER_NUMBERS:
            _draw(drawn, [(np.reshape(box, (-1, 2)), True)], colour, thickness)
            continue
        top, left, bottom, right = box
        corners = [
            (round(left * width), round(top * height)),
            (round(right * width) - 1, round(bottom * height) - 1),
        ]
        cv2.rectangle(drawn, corners[0], corners[1], colour, thickness)
    return drawn
