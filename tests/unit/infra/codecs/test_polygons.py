"""Polygons are cut at the edges of images without changing what they cover, and masks keep all pixels."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import shapely
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shardmill.infra.codecs.polygons import (
    are_flat,
    cut_rings,
    fill_rings,
    reversed_rings,
    rings_of_mask,
    signed_areas,
)

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


HEIGHT, WIDTH = 12, 20
RINGS = st.lists(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(0, 8), st.just(2)),
        elements=st.one_of(st.integers(-3, 24).map(float), st.floats(-30, 60, width=32)),
    ),
    max_size=4,
)


def joined(rings: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([np.empty((0, 2)), *rings]), np.array([len(ring) for ring in rings], np.int64)


@given(RINGS)
def test_cut_rings_cover_what_they_covered_within_the_image(rings: list[np.ndarray]) -> None:
    points, counts = joined(rings)
    cut, left = cut_rings(points, counts, 0, [HEIGHT, WIDTH])
    assert ((cut >= 0) & (cut <= [HEIGHT, WIDTH])).all()
    image = shapely.box(0, 0, HEIGHT, WIDTH)
    for ring, part in zip(rings, np.split(cut, np.cumsum(left)[:-1]) if len(left) else [], strict=True):
        if len(ring) < 3 or not (polygon := shapely.Polygon(ring)).is_valid:
            continue
        expected = polygon.intersection(image).area
        found = np.abs(signed_areas(*joined([part])))[0]
        assert abs(found - expected) < 1e-9 * HEIGHT * WIDTH
        # Rings that only touch the image are gone, and points outside are not kept as bridges of no area.
        assert len(part) or expected < 1e-9


def winding_numbers(rings: list[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """How often rings along the edges of pixels turn around the middle of each pixel."""
    found = np.zeros(shape, np.int64)
    for ring in rings:
        for (top, left), (bottom, right) in zip(ring, np.roll(ring, -1, 0), strict=True):
            assert (top == bottom) != (left == right)
            low, high = sorted((int(top), int(bottom)))
            found[low:high, int(left) :] += 1 if bottom > top else -1
    return found


@given(hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_the_outline_of_a_mask_is_without_loss(mask: np.ndarray) -> None:
    rings = rings_of_mask(mask)
    assert (winding_numbers(rings, mask.shape) == mask).all()
    points, counts = joined(rings)
    areas = signed_areas(points, counts)
    assert areas.sum() == mask.sum()
    assert not are_flat(points, counts).any()
    for ring in rings:  # no point lies within an edge
        steps = np.roll(ring, -1, 0) - ring
        assert (steps * np.roll(steps, -1, 0)).sum(1).tolist() == [0.0] * len(ring)


def test_pixels_that_touch_at_a_corner_have_a_ring_each() -> None:
    assert [len(ring) for ring in rings_of_mask(np.eye(3))] == [4, 4, 4]
    hollow = np.ones((3, 3), np.uint8)
    hollow[1, 1] = 0
    points, counts = joined(rings_of_mask(hollow))
    assert signed_areas(points, counts).tolist() == [9, -1]


def test_rings_on_one_line_are_flat() -> None:
    line = np.array([[0.0, 0], [3, 4], [9, 12], [6, 8]]) + 1e6
    bow = np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]])  # turns around two areas the opposite way
    thin = np.array([[0.0, 0], [1000, 1000], [1000, 1000.5]])
    points, counts = joined([line, bow, thin, np.empty((0, 2)), line[:2]])
    assert are_flat(points, counts).tolist() == [True, False, False, True, True]


def test_chosen_rings_are_reversed() -> None:
    one, other = np.array([[0.0, 0], [1, 0], [1, 1]]), np.array([[5.0, 5], [6, 5], [6, 6], [5, 6]])
    points, counts = joined([one, other])
    found = reversed_rings(points, counts, np.array([False, True]))
    assert found.tolist() == [*one.tolist(), *other[::-1].tolist()]
    assert signed_areas(found, counts).tolist() == [0.5, -1]


@given(RINGS)
def test_pixels_are_filled_whose_middle_is_inside(rings: list[np.ndarray]) -> None:
    points, counts = cut_rings(*joined(rings), 0, [HEIGHT, WIDTH])
    middles = np.stack(np.meshgrid(np.arange(HEIGHT) + 0.5, np.arange(WIDTH) + 0.5, indexing="ij"), -1)
    for part in np.split(points, np.cumsum(counts)[:-1]) if len(points) else []:
        if len(part) < 3 or not (polygon := shapely.Polygon(part)).is_valid:
            continue
        filled = fill_rings(*joined([part]), (HEIGHT, WIDTH))
        is_clear = shapely.distance(polygon.exterior, shapely.points(middles)) > 1e-9
        inside = shapely.contains_xy(polygon, middles[..., 0], middles[..., 1])
        assert (filled == inside)[is_clear].all()


@given(hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_filling_the_outline_of_a_mask_gives_the_mask(mask: np.ndarray) -> None:
    assert (fill_rings(*joined(rings_of_mask(mask)), mask.shape) == mask).all()


def test_overlapping_parts_are_a_union_and_holes_are_left_out() -> None:
    square = np.array([[0.0, 0], [6, 0], [6, 6], [0, 6]])
    filled = fill_rings(*joined([square, square + 3, square[::-1] / 3 + 1]), (9, 9))
    expected = np.zeros((9, 9), bool)
    expected[:6, :6] = expected[3:, 3:] = True
    expected[1:3, 1:3] = False
    assert (filled == expected).all()
