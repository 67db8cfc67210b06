"""Sizes, and scaling against exact references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.codecs.prepare import fit_pixels
from shardmill.infra.codecs.resize import Geometry, geometry, resize
from shardmill.infra.preparation import Sizing
from tests.samples.images import references
from tests.samples.images.photos import picture

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
