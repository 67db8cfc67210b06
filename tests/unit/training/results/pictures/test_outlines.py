"""Objects are drawn where their features say, each in the colour of its class."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra.codecs.masks import class_colors
from shardmill.infra.format.features import KeyPoints
from shardmill.training.results.pictures.batch_parts import Parts

SIDE = 100
BLANK = np.full((SIDE, SIDE, 3), 77, np.uint8)
TRIANGLE = [[0.1, 0.1], [0.1, 0.4], [0.4, 0.1]]
TURNED = [[0.5, 0.75], [0.75, 1.05], [1.0, 0.75], [0.75, 0.45]]
BOXES = [[0.1, 0.1, 0.4, 0.4], [0.6, 0.1, 0.9, 0.3], [0.5, 0.45, 1.0, 1.0]]
POINTS = [[0.2, 0.2], [0.15, 0.3], [0.0, 0.0]]
KNOWN = KeyPoints(names=("a", "b", "c"), skeleton=((0, 1), (1, 2)))

POLYGONS = {"objects/polygons": TRIANGLE, "objects/ring_points": [3], "objects/rings": [1, 0, 0]}
KEYPOINTS = {"objects/keypoints": [*POINTS, *[[0, 0]] * 6], "objects/visibility": [2, 1, 0, *[0] * 6]}


def drawn(**beside: Any) -> npt.NDArray[np.uint8]:
    batch = {f"objects/{name}": values for name, values in beside.items()}
    rows = {name: np.ravel(values)[np.newaxis] for name, values in batch.items()}
    return Parts(BLANK[np.newaxis], beside=rows).outlines(0, KNOWN).drawn(BLANK)


def shape(features: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("objects/"): values for name, values in features.items()}


def distance(ends: Any) -> npt.NDArray[np.float64]:
    """The distance of each pixel from a line between two points (pixels)."""
    start, stop = np.array(ends) * SIDE
    arms = np.stack(np.meshgrid(np.arange(SIDE) + 0.5, np.arange(SIDE) + 0.5, indexing="ij"), -1) - start
    along = np.clip(arms @ (stop - start) / max(((stop - start) ** 2).sum(), 1e-9), 0, 1)
    return np.asarray(np.linalg.norm(arms - along[..., np.newaxis] * (stop - start), axis=-1))


def closed(points: Any) -> list[Any]:
    return [*zip(points, [*points[1:], points[0]], strict=True)]


def square(top: float, left: float, bottom: float, right: float) -> list[Any]:
    return closed([[top, left], [top, right], [bottom, right], [bottom, left]])


CASES = {
    "boxes": ({"bbox": BOXES}, [line for box in BOXES for line in square(*box)]),
    "a polygon in place of its box": (
        {"bbox": BOXES, **shape(POLYGONS)},
        [*closed(TRIANGLE), *square(*BOXES[1]), *square(*BOXES[2])],
    ),
    "oriented boxes in place of others": (
        {"bbox": BOXES[:1], "label": [0], "corners": TURNED},
        closed(TURNED),
    ),
    "points and the line between those that are annotated": (
        {"label": [0, 1, 1], **shape(KEYPOINTS)},
        [(POINTS[0], POINTS[1])],
    ),
    "nothing": ({"label": []}, []),
}


@pytest.mark.parametrize("name", CASES)
def test_lines_lie_where_the_features_say(name: str) -> None:
    features, lines = CASES[name]
    changed = (drawn(**features) != 77).any(axis=2)
    distances = [distance(ends) for ends in lines] or [np.full((SIDE, SIDE), np.inf)]
    nearest = np.min(distances, axis=0)
    assert not changed[nearest > 5].any()
    assert changed[nearest < 0.5].all()


def test_objects_have_the_colours_of_their_classes() -> None:
    found = drawn(bbox=BOXES, label=[1, 0, 1], **shape(POLYGONS))
    colors = class_colors(2)
    assert (found[10, 20] == colors[1]).all()
    assert (found[75, 10] == colors[0]).all()
    hidden = drawn(label=[0, 0, 0], **shape(KEYPOINTS))
    assert (hidden[20, 20] == class_colors(1)[0]).all(), "a visible point is filled"
    assert (hidden[15, 30] == 255).all(), "a hidden one is a ring"
