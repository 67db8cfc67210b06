"""Polygons are cut off at the edges of images without changing what they cover inside."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.codecs.polygons import cut_rings

SIDE = 16
EVERY_PIXEL = np.stack(np.meshgrid(np.arange(SIDE) + 0.5, np.arange(SIDE) + 0.5, indexing="ij"), -1)


def windings(rings: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.int_]:
    """The sum of the winding numbers of rings about the centre of each pixel, by the angles they turn."""
    total = np.zeros((SIDE, SIDE))
    for ring in rings:
        arms = ring[:, None, None] - EVERY_PIXEL
        angles = np.arctan2(arms[..., 0], arms[..., 1])
        turns = np.diff(np.concatenate([angles, angles[:1]]), axis=0)
        total += ((turns + np.pi) % (2 * np.pi) - np.pi).sum(axis=0)
    return np.rint(total / (2 * np.pi)).astype(int)


def cut(rings: list[npt.NDArray[np.float64]], low: float, high: float) -> list[npt.NDArray[np.float64]]:
    lengths = np.array([len(ring) for ring in rings], np.int64)
    points, lengths = cut_rings(np.concatenate([np.zeros((0, 2)), *rings]), lengths, low, high)
    return np.split(points, np.cumsum(lengths)[:-1])


@given(
    st.lists(st.lists(st.tuples(*[st.integers(-12, 28)] * 2), min_size=3, max_size=9), min_size=1, max_size=4)
)
def test_the_winding_number_of_everything_inside_stays(rings: list[list[tuple[int, int]]]) -> None:
    drawn = [np.array(ring, np.float64) for ring in rings]
    found = cut(drawn, 0, SIDE)
    assert all((ring >= 0).all() and (ring <= SIDE).all() for ring in found)
    # Lines between whole numbers may go through the centres of pixels, where nothing is sure.
    nudged = [ring + 0.0137 * np.arange(1, 3) for ring in drawn]
    assert np.array_equal(windings(cut(nudged, 0, SIDE)), windings(nudged))


def test_rings_outside_or_without_area_have_no_points_and_others_are_unchanged() -> None:
    inside = np.array([[1, 1], [1, 9], [9, 9.0]])
    outside, touching = inside + 20, inside + np.array([15, 0])
    flat = np.array([[2, 2], [2, 5], [2, 9.0]])
    found = cut([outside, inside, touching, flat], 0, SIDE)
    assert [len(ring) for ring in found] == [0, 3, 0, 0]
    assert np.array_equal(found[1], inside)
    assert cut([], 0, SIDE)[0].shape == (0, 2)


def test_each_ring_has_its_own_rectangle() -> None:
    square = np.array([[0, 0], [0, 8], [8, 8], [8, 0.0]])
    points, lengths = cut_rings(
        np.concatenate([square, square]), np.array([4, 4]), [[0, 0], [2, 3]], [[4, 4], [6, 9]]
    )
    boxes = [cv2.boundingRect(ring.astype(np.float32)[:, ::-1]) for ring in np.split(points, [lengths[0]])]
    assert [box[:2] for box in boxes] == [(0, 0), (3, 2)]
    assert points[lengths[0] :].max(0).tolist() == [6, 8]
