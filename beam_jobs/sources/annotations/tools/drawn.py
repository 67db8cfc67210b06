"""Objects as labelling tools draw them: turned boxes, ellipses, and points grouped with their object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardmill.beam_jobs.sources.annotations.collecting import Annotations, Box
from shardmill.beam_jobs.sources.annotations.features import texts_feature
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.annotations.shapes import LARGEST, Points, Shape
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import KeyPoints, partners_by_name
from shardmill.infra.format.known_features import POINT_NUMBERS

LEFT_OUT = "of an annotation that is no object here"  # why something is skipped
_OUTLINE_POINTS = 64  # of circles and ellipses

NamedPoints = Mapping[str, tuple[float, float, int]]  # name of a key point -> y, x and visibility


def read_json(table: AnnotationTable) -> Any:
    """Read a JSON file.

    Raises:
        ConfigError: it is none.
    """
    try:
        return json.loads(table.read())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the annotation file {table.name} is no JSON: {error}") from error


def numbers_in(values: Mapping[str, Any], *names: str) -> list[float] | None:
    """Return the values of some keys, if all are finite numbers, or texts of these; else None."""
    found = []
    for name in names:
        value = values.get(name)
        try:
            number = math.nan if isinstance(value, bool) or value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            return None
        if not abs(number) < LARGEST:  # so for numbers that are none
            return None
        found.append(number)
    return found


def turned_box(
    left: float, top: float, width: float, height: float, degrees: float, *, around_corner: bool = False
) -> Points:
    """Return the corners of a box that is turned clockwise: float64 [4, 2] of y, x.

    Args:
        left: its left edge before it is turned.
        top: its top edge before it is turned.
        width: its width.
        height: its height.
        degrees: that it is turned by.
        around_corner: it is turned around its left top corner, else around its middle.
    """
    x, y = (left, top) if around_corner else (left + width / 2, top + height / 2)
    corners = np.array([[top, left], [top, left + width], [top + height, left + width], [top + height, left]])
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turned: Points = (corners - [y, x]) @ np.array([[cos, -sin], [sin, cos]]) + [y, x]
    return turned


def ellipse(x: float, y: float, radius_x: float, radius_y: float, degrees: float = 0.0) -> Shape:
    """Return the outline of an ellipse that is turned clockwise; it goes through its outermost points."""
    angles = np.arange(_OUTLINE_POINTS) * (2 * math.pi / _OUTLINE_POINTS)
    turn = math.radians(degrees)
    along, across = radius_x * np.cos(angles), radius_y * np.sin(angles)
    xs = x + along * math.cos(turn) - across * math.sin(turn)
    ys = y + along * math.sin(turn) + across * math.cos(turn)
    return Shape(rings=[np.stack([ys, xs], axis=1)])


@dataclass(slots=True)
class Drawn:
    """An object, and the points that are grouped with it.

    Attributes:
        image: number of its image.
        box: its edges; None: those of its shape.
        name: its class, or None.
        shape: what it has beside its box; None: nothing.
        points: its key points.
        who: the object, for people.
    """

    image: int
    box: Box | None
    name: str | None
    shape: Shape | None
    points: NamedPoints
    who: str


@dataclass
class DrawnObjects:
    """The objects of annotation files whose key points have names, to be added when all are known.

    Attributes:
        texts: name of the feature of what is said of whole images: "choices", "tags" or "flags".
        objects: the objects.
        said: number of an image -> what is said of it.
    """

    texts: str
    objects: list[Drawn] = field(default_factory=list)
    said: dict[int, list[str]] = field(default_factory=dict)

    def add(
        self,
        image: int,
        name: str | None,
        who: str,
        *,
        box: Box | None = None,
        shape: Shape | None = None,
        points: NamedPoints | None = None,
    ) -> None:
        """Keep an object; see ``Drawn``."""
        self.objects.append(Drawn(image, box, name, shape, points or {}, who))

    def say(self, image: int, text: str) -> None:
        """Keep the choices, tags or flags of a whole image."""
        self.said.setdefault(image, []).append(text)

    def finish(self, found: Annotations) -> None:
        """Add all objects. The key points of a class are those of its objects, in order of appearance."""
        names: dict[str, dict[str, None]] = {}
        for drawn in self.objects:
            if drawn.name is not None and drawn.points:
                names.setdefault(drawn.name, {}).update(dict.fromkeys(drawn.points))
        for name, points in names.items():
            if points:
                key_points = KeyPoints(names=tuple(points), partners=partners_by_name(tuple(points)))
                found.name_points(name, key_points)
        for drawn in self.objects:
            shape = drawn.shape
            if drawn.name is not None and drawn.points:
                given = [drawn.points.get(point, (0.0, 0.0, 0)) for point in names[drawn.name]]
                where = np.array(given, np.float64)[:, :POINT_NUMBERS]
                seen = [visibility for _, _, visibility in given]
                rings, corners = (shape.rings, shape.corners) if shape is not None else ((), None)
                holes = shape is not None and shape.has_holes
                shape = Shape(rings, holes, keypoints=where, visibility=seen, corners=corners)
            found.add_object(drawn.image, drawn.box, drawn.name, shape=shape, who=drawn.who)
        if self.said:
            texts = [self.said.get(number) for number in range(len(found.images))]
            found.add_features(texts_feature(self.texts, texts, self.texts))
