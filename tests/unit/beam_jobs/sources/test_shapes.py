"""Shapes of objects as annotation files may give them: read, counted where broken, and as columns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shapely

from shardmill.beam_jobs.sources.annotations.collecting import NO_BOX, AnnotatedImage, Annotations
from shardmill.beam_jobs.sources.annotations.shape_columns import shape_features
from shardmill.beam_jobs.sources.annotations.shapes import (
    BAD_CORNERS,
    BAD_POINTS,
    BAD_RING,
    FLAT_RING,
    NO_POINT_NAMES,
    Shape,
    keypoints_of,
    points_of,
)
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import KeyPoints, partners_by_name
from shardmill.infra.format.known_features import CORNERS, KEYPOINTS, POLYGONS, RING_POINTS, RINGS, VISIBILITY

BOX = (1.0, 2.0, 8.0, 9.0)
SQUARE = [[2, 1], [9, 1], [9, 8], [2, 8]]  # x, y
EYES = KeyPoints(names=("left eye", "right eye"), partners=(1, 0), skeleton=((0, 1),))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3.5, 4], [[2, 1], [4, 3.5]]),
        ([[1, 2], [3, 4]], [[2, 1], [4, 3]]),
        ([], []),
        *[
            (values, [])
            for values in (
                [1, 2, 3], [[1, 2], [3]], [[1, 2, 3]], "1,2", None, 7, {"x": 1}, ["1", "2"], [None, 1],
                [True, False], [math.nan, 1], [1, math.inf], [10**400, 1], [1e9, 1], [[[1, 2]]], b"12",
                [{}, {}],
            )
        ],
    ],
)  # fmt: skip
def test_points_are_pairs_of_finite_numbers(values: object, expected: list[list[float]]) -> None:
    found = points_of(values)
    assert found.dtype == np.float64
    assert found.tolist() == expected


@pytest.mark.parametrize("visibility", [3, -1, 0.5, math.nan, "2"])
def test_the_visibility_of_key_points_is_0_1_or_2(visibility: object) -> None:
    assert keypoints_of([1, 2, 2, 3, 4, visibility])[0].shape == (0, 2)
    points, found = keypoints_of([1, 2, 2, 3, 4, 1.0])
    assert (points.tolist(), found) == ([[2, 1], [4, 3]], [2, 1])


def annotations() -> Annotations:
    found = Annotations()
    found.name_points("cat", EYES)
    found.add_image(AnnotatedImage("a#1", "image 1", "1.png"))
    return found


@pytest.mark.parametrize(
    ("shape", "why", "box"),
    [
        (Shape([points_of(SQUARE)]), None, BOX),
        (Shape([points_of(SQUARE[:2])]), BAD_RING, None),
        (Shape([points_of(SQUARE), points_of("no")]), BAD_RING, BOX),
        (Shape([np.array([[0, 0], [1, math.nan], [2, 2]])]), BAD_RING, None),
        (Shape(corners=points_of(SQUARE)), None, BOX),
        (Shape(corners=points_of(SQUARE[:3])), BAD_CORNERS, None),
        (Shape(keypoints=points_of([[2, 1], [9, 8]])), None, BOX),
        (Shape(keypoints=np.array([[1, 2], [math.nan, 0]]), visibility=[2, 0]), None, (1, 2, 1, 2)),
        (Shape(keypoints=np.array([[1, 2], [math.nan, 0]]), visibility=[2, 1]), BAD_POINTS, None),
        (Shape(keypoints=points_of([[2, 1], [9, 8]]), visibility=[0, 0]), None, None),
        (Shape(keypoints=points_of(SQUARE)), BAD_POINTS, None),
        (Shape(keypoints=points_of([[2, 1], [9, 8]]), visibility=[2, 7]), BAD_POINTS, None),
        (Shape(), None, None),
    ],
)
def test_broken_shapes_are_counted_and_sound_ones_have_a_box(
    shape: Shape, why: str | None, box: tuple[float, ...] | None
) -> None:
    found = annotations()
    found.add_object(0, None, "cat", shape=shape, who="annotation 7")
    assert dict(found.shapes.lost) == ({why: 1} if why else {})
    assert found.shapes.first == ({why: "annotation 7"} if why else {})
    assert found.left_out == ({} if box else {NO_BOX: 1})
    assert [*found.boxes] == [*(box or ())]
    found.add_object(0, BOX, "cat", shape=shape)
    assert [*found.boxes][-4:] == [*BOX]  # the source's own box comes first


def columns(found: Annotations) -> dict[str, list[object]]:
    count = len(found.names)
    boxes = np.array(found.boxes).reshape(-1, 4)
    made = shape_features(found.shapes, boxes, found.names, np.arange(count), np.array([count]))
    return {feature.name: column.to_pylist()[0] for feature, column in made}


def test_parts_turn_one_way_and_rings_with_holes_stay() -> None:
    found = annotations()
    ring = np.array([[0.0, 0], [4, 0], [4, 4], [0, 4], [0, 0]])  # closed by its first point
    flat = np.array([[0.0, 0], [2, 2], [5, 5]])
    found.add_object(0, BOX, "cat", shape=Shape([ring, flat, ring[::-1]]))
    found.add_object(0, BOX, "cat")
    found.add_object(0, BOX, "cat", shape=Shape([ring, ring[::-1] / 2], has_holes=True))
    made = columns(found)
    assert made.keys() == {POLYGONS, RING_POINTS, RINGS}
    assert made[RINGS] == [2, 0, 2]
    assert made[RING_POINTS] == [4, 4, 4, 4]
    rings = np.array(made[POLYGONS]).reshape(4, 4, 2)
    assert len({*map(tuple, rings[0].tolist())}) == 4
    polygons = [shapely.Polygon(ring) for ring in rings]
    assert [each.area for each in polygons] == [16, 16, 16, 4]
    first = polygons[0].exterior.is_ccw
    assert [each.exterior.is_ccw == first for each in polygons] == [True, True, True, False]
    assert found.shapes.lost == {FLAT_RING: 1}


def test_objects_have_the_key_points_of_all_classes() -> None:
    found = annotations()
    found.name_points("fish", KeyPoints(names=("tail", "left eye"), skeleton=((1, 0),)))
    points = points_of([[1, 2], [3, 4]])
    found.add_object(0, BOX, "fish", shape=Shape(keypoints=points))
    found.add_object(0, BOX, "cat", shape=Shape(keypoints=points, visibility=[1, 0]))
    found.add_object(0, BOX, "dog", shape=Shape(keypoints=points), who="annotation 3")
    made = shape_features(found.shapes, np.zeros((3, 4)), found.names, np.arange(3), np.array([3]))
    described = {feature.name: (feature, column.to_pylist()[0]) for feature, column in made}
    known = described[KEYPOINTS][0].points
    assert known is not None
    assert known.names == ("left eye", "right eye", "tail")
    assert (known.skeleton, known.partners) == (((0, 1), (0, 2)), None)  # nothing tells the fish's partners
    assert described[VISIBILITY][1] == [2, 0, 2, 1, 0, 0, 0, 0, 0]
    assert described[KEYPOINTS][1] == [4, 3, 0, 0, 2, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert found.shapes.lost == {NO_POINT_NAMES: 1}
    with pytest.raises(ConfigError, match="different key points"):
        found.name_points("cat", KeyPoints(names=("nose",)))


def test_objects_without_corners_have_those_of_their_box() -> None:
    found = annotations()
    found.add_object(0, BOX, "cat", shape=Shape(corners=points_of([[5, 0], [9, 4], [5, 8], [1, 4]])))
    found.add_object(0, BOX, "cat")
    assert columns(found) == {CORNERS: [0, 5, 4, 9, 8, 5, 4, 1, 1, 2, 1, 9, 8, 9, 8, 2]}


def test_a_source_with_boxes_alone_has_no_shapes() -> None:
    found = annotations()
    found.add_object(0, BOX, "cat")
    found.add_object(0, BOX, "cat", shape=Shape())
    assert columns(found) == {}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("left_eye", "right_eye", "nose", "bright spot"), (1, 0, 2, 3)),
        (("LeftEye", "RightEye", "LEFT", "RIGHT"), (1, 0, 3, 2)),
        (("nose", "upright"), None),
        (("left_eye", "nose"), None),
        (("1", "2"), None),
    ],
)
def test_names_tell_the_partners_of_key_points(names: tuple[str, ...], expected: object) -> None:
    assert partners_by_name(names) == expected
