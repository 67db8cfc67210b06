"""Boxes against pixels: a box drawn into an image is found where geometry says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmill.beam_jobs.config import ImageConfig
from shardmill.infra.codecs.boxes import (
    Boxes,
    Places,
    clip_boxes,
    have_area,
    place_boxes,
    turn_boxes_upright,
    upright_sizes,
)
from shardmill.infra.codecs.formats import apply_orientation
from shardmill.infra.codecs.prepare import fit_pixels
from shardmill.infra.codecs.resize import geometry

SIDES = st.integers(2, 60)
ORIENTATIONS = st.integers(1, 8)


def drawn(height: int, width: int, box: tuple[int, int, int, int]) -> np.ndarray:
    """uint8 [H, W, 1], white inside of the box."""
    pixels = np.zeros((height, width, 1), np.uint8)
    pixels[box[0] : box[2], box[1] : box[3]] = 255
    return pixels


def found(pixels: np.ndarray) -> list[int]:
    """The box around all that is not black; empty if all is."""
    rows, columns = np.flatnonzero(pixels.any((1, 2))), np.flatnonzero(pixels.any((0, 2)))
    return [rows[0], columns[0], rows[-1] + 1, columns[-1] + 1] if len(rows) else []


@st.composite
def boxed(draw: st.DrawFn) -> tuple[int, int, tuple[int, int, int, int]]:
    """Height and width of an image, and a box in it."""
    height, width = draw(SIDES), draw(SIDES)
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    bottom, right = draw(st.integers(top + 1, height)), draw(st.integers(left + 1, width))
    return height, width, (top, left, bottom, right)


def as_arrays(height: int, width: int, box: tuple[int, ...], orientation: int) -> tuple[Boxes, ...]:
    return np.array([box], np.float64), np.array([[height, width]]), np.array([orientation])


@given(boxed(), ORIENTATIONS)
def test_boxes_turn_as_pixels_do(image: tuple[int, int, tuple[int, int, int, int]], orientation: int) -> None:
    height, width, box = image
    boxes, sizes, orientations = as_arrays(height, width, box, orientation)
    upright = apply_orientation(drawn(height, width, box), orientation)
    assert upright_sizes(sizes, orientations).tolist() == [list(upright.shape[:2])]
    assert turn_boxes_upright(boxes, sizes, orientations).tolist() == [found(upright)]


@given(
    boxed(),
    st.sampled_from(["short", "long", "pad", "crop", "none"]),
    st.integers(8, 40),
    st.integers(8, 40),
    st.booleans(),
)
@example((6, 27, (0, 0, 1, 27)), "short", 13, 13, True)  # 27 * (58 / 27) is more than 58
def test_boxes_are_cut_and_scaled_as_pixels_are(
    image: tuple[int, int, tuple[int, int, int, int]], resize: str, high: int, wide: int, upscale: bool
) -> None:
    height, width, box = image
    settings = {"resize": resize, "size": high, "height": high, "width": wide, "upscale": upscale}
    sizing = ImageConfig.model_validate(settings).sizing
    to = geometry(height, width, sizing)
    pixels = fit_pixels(drawn(height, width, box), to, "area", (0, 0, 0))
    places = Places.of(np.array([[height, width]]), lambda high, wide: geometry(high, wide, sizing))
    placed = place_boxes(np.array([box], np.float64), places, np.array([0]))
    assert ((placed >= 0) & (placed <= 1)).all()
    seen = found(pixels)
    if not have_area(placed)[0]:
        assert not seen
        return
    edges = placed[0] * np.tile(to.canvas, 2)
    # A pixel is not black if the box covers a part of it; of an enlarged image also beside it.
    grown = [max(1.0, to.scaled[axis] / to.window[2 + axis]) for axis in (0, 1, 0, 1)]
    if seen:  # a part of one in 510 of a pixel is rounded to black
        assert np.abs(edges - seen).max() <= max(grown) + 1e-9


def test_a_box_over_the_whole_image_stays_one() -> None:
    for resize, expected in (("short", [0, 0, 1, 1]), ("crop", [0, 0, 1, 1]), ("pad", [0.25, 0, 0.75, 1])):
        sizing = ImageConfig.model_validate({"resize": resize, "size": 16}).sizing
        places = Places.of(np.array([[40, 80]]), lambda high, wide, of=sizing: geometry(high, wide, of))
        placed = place_boxes(np.array([[0.0, 0, 40, 80]]), places, np.array([0]))
        assert placed.tolist() == [expected]


def test_a_box_that_a_crop_leaves_out_has_no_area() -> None:
    sizing = ImageConfig.model_validate({"resize": "crop", "size": 16}).sizing
    places = Places.of(np.array([[40, 80]]), lambda high, wide: geometry(high, wide, sizing))
    placed = place_boxes(np.array([[0.0, 0, 40, 10], [0, 15, 40, 40]]), places, np.array([0, 0]))
    assert have_area(placed).tolist() == [False, True]
    assert placed[1].tolist() == [0, 0, 1, 0.5]


def test_boxes_end_at_the_edges_of_the_image() -> None:
    clipped = clip_boxes(np.array([[-5.0, -5, 30, 90], [50, 0, 60, 10]]), [40, 40], [80, 80])
    assert clipped.tolist() == [[0, 0, 30, 80], [40, 0, 40, 10]]
    assert have_area(clipped).tolist() == [True, False]


def test_numbers_that_are_none_have_no_area() -> None:
    nan = float("nan")
    assert not have_area(clip_boxes(np.array([[nan, 0, 9, 9], [0, 0, nan, 9]]), [9, 9], [9, 9])).any()


def test_no_boxes_are_no_boxes() -> None:
    nothing = np.empty((0, 4))
    places = Places.of(np.empty((0, 2), np.int64), lambda *_: pytest.fail("of no image"))
    assert place_boxes(nothing, places, np.empty(0, np.int64)).shape == (0, 4)
    none = np.empty(0, np.int64)
    assert turn_boxes_upright(nothing, np.empty((0, 2), np.int64), none).shape == (0, 4)
