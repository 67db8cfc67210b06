"""The overlap of oriented boxes, against shapely; and average precision with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shapely

from shardmill.training.metrics.box_matching import box_overlaps, match_boxes
from shardmill.training.metrics.detection import DetectionTally
from tests.samples.images.turned_boxes import turned

SQUARE = [0, 0, 1, 0, 1, 1, 0, 1]


def boxes(seed: int, count: int) -> np.ndarray[Any, Any]:
    """Parallelograms of all sizes: turned rectangles in a squeezed image; every other one is mirrored."""
    chance = np.random.default_rng(seed)
    found = []
    for number in range(count):
        sides = np.exp(chance.uniform(-7, 0, 2))
        corners = turned(chance.uniform(0.1, 0.9, 2), sides, chance.uniform(0, 7)) * [1.0, 0.6]
        found.append((corners[::-1] if number % 2 else corners).ravel())
    return np.array(found)


def share(one: Any, other: Any) -> float:
    first, second = (shapely.Polygon(np.reshape(box, (4, 2))) for box in (one, other))
    return float(first.intersection(second).area / first.union(second).area)


def test_overlaps_are_those_of_shapely() -> None:
    one, other = boxes(0, 60), np.concatenate([boxes(1, 60), boxes(0, 20) + 1e-3])
    wanted = [[share(box, its) for its in other] for box in one]
    assert 0.05 < np.mean(np.array(wanted) > 0) < 0.9
    np.testing.assert_allclose(box_overlaps(one, other, np.zeros(80, bool)), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (SQUARE, 1.0),
        (SQUARE[2:] + SQUARE[:2], 1.0),
        ([1, 0, 0, 0, 0, 1, 1, 1], 1.0),  # mirrored
        ([1, 0, 2, 0, 2, 1, 1, 1], 0.0),  # they touch at an edge
        ([1, 1, 2, 1, 2, 2, 1, 2], 0.0),  # at a corner
        ([0.25, 0.25, 0.75, 0.25, 0.75, 0.75, 0.25, 0.75], 0.25),  # inside
        ([0.5, 0, 1, 0.5, 0.5, 1, 0, 0.5], 0.5),  # inside, turned
        ([-1, -1, 2, -1, 2, 2, -1, 2], 1 / 9),  # around
        ([0.5, -0.5, 1.5, 0.5, 0.5, 1.5, -0.5, 0.5], 1 / 2),  # around, turned
        ([0, 0, 1e-6, 0, 1e-6, 1e-6, 0, 1e-6], 1e-12),
        ([0.5, 0.5] * 4, 0.0),  # a point
        ([0, 0, 1, 1, 1, 1, 0, 0], 0.0),  # a line
        ([np.nan] * 8, 0.0),
        ([*SQUARE[:7], np.inf], 0.0),
        ([0, 0, 1, 0, 0.5, 0.5, 0, 1], 0.5),  # no parallelogram
    ],
)
def test_pairs_at_the_edge(other: list[float], wanted: float) -> None:
    pair = np.array([SQUARE], float), np.array([other], float)
    none = np.zeros(1, bool)
    assert box_overlaps(*pair, none)[0, 0] == pytest.approx(wanted, rel=1e-9, abs=1e-15)
    if wanted != 0.5 or other[0] != 0:  # what a model finds is a parallelogram
        assert box_overlaps(*pair[::-1], none)[0, 0] == pytest.approx(wanted, rel=1e-9, abs=1e-15)


def test_none_of_either_and_crowds() -> None:
    for shape in ((0, 3), (3, 0), (0, 0)):
        found, wanted = (np.zeros((count, 8), np.float32) for count in shape)
        assert box_overlaps(found, wanted, np.zeros(shape[1], bool)).shape == shape
    half = np.array([[0.5, 0, 1.5, 0, 1.5, 1, 0.5, 1]])
    square = np.array([SQUARE], float)
    assert box_overlaps(half, square, np.array([True]))[0, 0] == pytest.approx(0.5)
    hits, ignored = match_boxes(half, square, np.array([True]))
    assert not hits.any()
    assert ignored[0].tolist() == [True] + [False] * 9


def test_a_turned_box_of_the_same_edges_is_another() -> None:
    """A bar and its mirror picture have the same edges: an overlap of those would be 1."""
    bar = turned(np.array([0.5, 0.5]), np.array([0.8, 0.1]), np.pi / 4).reshape(1, 1, 8)
    labels = {"boxes": bar, "classes": np.array([[0]]), "crowds": np.array([[False]])}
    for found, precision in ((bar, 1.0), (np.abs(bar - np.tile([1.0, 0.0], 4)), 0.0)):
        rows = {
            "losses": np.zeros(1),
            "boxes": found,
            "classes": labels["classes"],
            "scores": np.ones((1, 1)),
        }
        tally = DetectionTally(1)
        tally.add(labels, rows)
        assert tally.evaluation().figures()["average_precision"] == pytest.approx(precision)
