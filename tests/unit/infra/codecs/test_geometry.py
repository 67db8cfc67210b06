"""Sizes, and scaling against exact references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmill.beam_jobs.config import ImageConfig
from shardmill.infra.codecs.formats import apply_orientation
from shardmill.infra.codecs.geometry import (
    Boxes,
    Geometry,
    Places,
    clip_boxes,
    geometry,
    have_area,
    place_boxes,
    resize,
    resize_samples,
    turn_boxes_upright,
    upright_sizes,
)
from shardmill.infra.codecs.prepare import fit_pixels
from shardmill.infra.preparation import Sizing
from tests.samples.images import references
from tests.samples.images.photos import picture

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
    for mode, expected in (("short", [0, 0, 1, 1]), ("crop", [0, 0, 1, 1]), ("pad", [0.25, 0, 0.75, 1])):
        sizing = ImageConfig.model_validate({"resize": mode, "size": 16}).sizing
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


WHITE = (255, 255, 255)


@pytest.mark.parametrize(
    ("mode", "upscale", "size", "scaled", "canvas"),
    [
        ("short", False, (400, 300), (133, 100), (133, 100)),
        ("short", False, (60, 80), (60, 80), (60, 80)),
        ("short", True, (60, 80), (100, 133), (100, 133)),
        ("long", False, (400, 300), (100, 75), (100, 75)),
        ("long", False, (90, 80), (90, 80), (90, 80)),
        ("long", True, (50, 25), (100, 50), (100, 50)),
        ("none", True, (40, 30), (40, 30), (40, 30)),
        ("pad", False, (400, 300), (100, 75), (100, 120)),
        ("pad", False, (40, 30), (40, 30), (100, 120)),
        ("pad", True, (40, 30), (100, 75), (100, 120)),
        ("crop", False, (400, 300), (100, 120), (100, 120)),
        ("crop", False, (40, 300), (40, 120), (100, 120)),
        ("crop", True, (40, 30), (100, 120), (100, 120)),
        ("short", False, (9000, 3), (9000, 3), (9000, 3)),
        ("long", False, (9000, 3), (100, 1), (100, 1)),
    ],
)
def test_sizes(
    mode: Any, upscale: bool, size: tuple[int, int], scaled: tuple[int, int], canvas: tuple[int, int]
) -> None:
    width = 120 if mode in ("pad", "crop") else 100
    found = geometry(*size, Sizing(mode, 100, width, upscale))
    assert (found.scaled, found.canvas) == (scaled, canvas)


@given(
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.sampled_from(["short", "long", "pad", "crop", "none"]),
    st.integers(8, 600),
    st.integers(8, 600),
    st.booleans(),
)
def test_a_geometry_is_within_its_bounds(
    height: int, width: int, mode: Any, to_height: int, to_width: int, upscale: bool
) -> None:
    found = geometry(height, width, Sizing(mode, to_height, to_width, upscale))
    y, x, window_height, window_width = found.window
    assert 0 <= y <= height - window_height
    assert 0 <= x <= width - window_width
    assert not (y | x | found.offset[0] | found.offset[1]) & 1, "chroma samples are not cut through"
    for offset, scaled, canvas in zip(found.offset, found.scaled, found.canvas, strict=True):
        assert offset >= 0
        assert 1 <= scaled <= canvas - offset
    if not upscale:
        assert found.scaled[0] <= window_height
        assert found.scaled[1] <= window_width
    if mode in ("pad", "crop"):
        assert found.canvas == (to_height, to_width)
    if mode != "crop":
        assert found.window == (0, 0, height, width)
    if mode == "crop" and upscale:
        assert found.scaled == found.canvas, "a crop that may enlarge leaves nothing to fill"


def test_a_crop_is_around_the_centre_and_a_pad_around_the_image() -> None:
    pixels = np.zeros((40, 100, 3), np.uint8)
    pixels[:, 48:52] = (255, 0, 0)
    cropped = fit_pixels(pixels, geometry(40, 100, Sizing("crop", 40, 40)), "area", WHITE)
    assert cropped.shape == (40, 40, 3)
    assert (cropped[:, 18:22] == (255, 0, 0)).all()
    assert (cropped[:, :18] == 0).all()
    padded = fit_pixels(pixels, geometry(40, 100, Sizing("pad", 60, 120)), "area", (1, 2, 3))
    assert padded.shape == (60, 120, 3)
    assert (padded[10:50, 10:110] == pixels).all()
    assert (padded[:10] == (1, 2, 3)).all()
    assert (padded[:, 110:] == (1, 2, 3)).all()


@pytest.mark.parametrize(
    ("size", "to"),
    [((533, 400), (341, 256)), ((600, 800), (150, 200)), ((97, 61), (32, 48)), ((64, 64), (9, 64))],
)
@pytest.mark.parametrize("resample", ["area", "lanczos"])
def test_scaled_as_by_the_exact_filter(size: tuple[int, int], to: tuple[int, int], resample: Any) -> None:
    for image in (references.zone_plate(*size), picture(3, *size)):
        found = resize(image, to, resample)
        if to[0] <= size[0] and to[1] <= size[1]:
            reference = getattr(references, resample)(image, *to)
            assert references.psnr(found, np.clip(reference, 0, 255)) >= 45
        assert found.shape == (*to, *image.shape[2:])


@pytest.mark.parametrize("resample", ["area", "lanczos"])
@pytest.mark.parametrize("to", [(13, 40), (20, 27), (33, 33)], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_samples_are_scaled_as_by_the_exact_filter(dtype: str, to: tuple[int, int], resample: Any) -> None:
    """Five channels, each for itself, within a step of the type (of float32: at the size of the largest)."""
    shares = np.random.default_rng(0).random((40, 54, 5))
    image = (shares * 2e4 - 1e4 if dtype == "float32" else shares * np.iinfo(dtype).max).astype(dtype)
    found, exact = resize_samples(image, to, resample), getattr(references, resample)(image, *to)
    if dtype != "float32":
        exact = np.clip(exact, 0, np.iinfo(dtype).max)
    step = np.spacing(np.float32(1e4)) * 8 if dtype == "float32" else 0.51
    assert (found.dtype, found.shape) == (dtype, (*to, 5))
    assert np.abs(found - exact).max() <= step


@pytest.mark.parametrize(
    ("dtype", "channels", "around"),
    [
        ("uint16", 3, [255 * 257, 128 * 257, 0]), ("uint16", 1, [151 * 257]), ("uint8", 2, [0, 0]),
        ("uint16", 5, [0] * 5), ("float32", 3, [0, 0, 0]),
    ],
)  # fmt: skip
def test_samples_lie_on_their_canvas(dtype: str, channels: int, around: list[int]) -> None:
    image = np.full((20, 40, channels), 7, dtype)
    found = fit_pixels(image, geometry(20, 40, Sizing("pad", 30, 30)), "area", (255, 128, 0))
    assert (found.dtype, found.shape) == (dtype, (30, 30, channels))
    assert (found[6:21] == 7).all()
    assert (found[:6] == around).all()
    cut = fit_pixels(image, geometry(20, 40, Sizing("crop", 10, 10)), "area", (255, 128, 0))
    assert (cut.shape, cut.min(), cut.max()) == ((10, 10, channels), 7, 7)


def test_a_zone_plate_does_not_alias() -> None:
    """A filter without aliasing leaves grey where the rings are finer than the new pixels."""
    plate = references.zone_plate(512, 512)
    for resample, deviation in (("area", 32), ("lanczos", 8)):
        corner = resize(plate, (128, 128), resample)[:16, :16].astype(float)  # type: ignore[arg-type]
        assert corner.std() < deviation
    aliased = plate[2::4, 2::4][:16, :16].astype(float)
    assert aliased.std() > 60, "what would be seen without a filter"


def test_enlarging_interpolates() -> None:
    found = resize(np.array([[0, 100]], np.uint8), (1, 8))
    assert found[0].tolist() == sorted(found[0].tolist())
    assert len(set(found[0].tolist())) > 2, "pixels are not just repeated"
    assert Geometry((0, 0, 1, 2), (1, 8), (1, 8), (0, 0)).keeps_all_of(1, 2)


@pytest.mark.parametrize(("height", "width"), [(256, 257), (259, 256), (256, 256)])
def test_a_crop_that_cuts_a_little_off_the_end_is_not_whole(height: int, width: int) -> None:
    found = geometry(height, width, Sizing("crop", 256, 256))
    assert found.window == (0, 0, 256, 256)
    assert found.keeps_all_of(height, width) == (height == width)
