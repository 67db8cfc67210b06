"""Measures of bad pictures, against the same in float64 by scipy on whole pictures."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageFilter
from scipy import stats

from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.arrays import in_grey
from shardmill.infra.codecs.measures import Measures
from shardmill.infra.codecs.prepare import luma, prepare_image
from shardmill.infra.codecs.quality import of_levels
from shardmill.infra.preparation import Preparation
from tests.end_to_end.golden.cases import shared_folder
from tests.samples.images.photos import picture

Found = dict[str, Any]
_PHOTOS = sorted(shared_folder("clothing").rglob("*.jpg"))[::450]


def measured(pixels: Pixels) -> Found:
    shown = luma(pixels)
    return columns(Measures.of_pixels(pixels, shown, shown))


def columns(measures: Measures) -> Found:
    found = measures.quality
    levels = {name: values[0] for name, values in of_levels([found]).items()}
    return levels | {"luma_sharpness": found.luma_sharpness, "border_share": found.border_share}


def prepared(image: Image.Image, kind: str = "PNG", **how: Any) -> Found:
    sink = io.BytesIO()
    image.save(sink, kind)
    return columns(prepare_image(sink.getvalue(), Preparation(**how)).measures)


def _halved(plane: npt.NDArray[np.float64], below: int) -> npt.NDArray[np.float64]:
    while min(plane.shape) >= below:
        height, width = (side & ~1 for side in plane.shape)
        plane = plane[:height, :width].reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))
        plane = np.floor(plane + 0.5)
    return plane


def _roughness(plane: npt.NDArray[np.float64]) -> float:
    return float((np.diff(plane, axis=0) ** 2).sum() + (np.diff(plane, axis=1) ** 2).sum()) / plane.size


def _pictures() -> list[Pixels]:
    drawn = [picture(seed, 300 + seed, 411 - seed) for seed in range(3)]
    noise = np.random.default_rng(1).integers(0, 256, (200, 300, 3), np.uint8)
    small = picture(9, 40, 70)
    return [*drawn, noise, small, *(np.asarray(Image.open(path).convert("RGB")) for path in _PHOTOS)]


@pytest.mark.parametrize("number", range(5 + len(_PHOTOS)))
def test_the_definition(number: int) -> None:
    pixels = _pictures()[number]
    plane = luma(pixels).astype(np.float64)
    found = measured(pixels)
    assert found["border_share"] == 0
    small, fine = _halved(plane, 128), _halved(plane, 256)
    counts = np.bincount(small.ravel().astype(int), minlength=256)
    assert found["luma_entropy"] == pytest.approx(stats.entropy(counts, base=2), abs=0.0006)
    for name, share in (("luma_p5", 5), ("luma_p99", 99)):
        assert found[name] == np.percentile(small, share, method="inverted_cdf")
    coarse = _halved(fine, min(fine.shape))
    assert found["luma_sharpness"] == pytest.approx(_roughness(fine) / (_roughness(coarse) + 0.5), abs=0.0006)


def test_planes_and_pixels_measure_the_same_picture_alike() -> None:
    sharp = Image.fromarray(picture(3, 300, 400)).filter(ImageFilter.DETAIL)
    by_planes, by_pixels = prepared(sharp, "JPEG"), prepared(sharp, "PNG")
    for name in by_pixels:
        assert by_planes[name] == pytest.approx(by_pixels[name], rel=0.02, abs=1.5), name


def _texture() -> Image.Image:
    """A picture with edges and detail."""
    rng = np.random.default_rng(5)
    tiles = np.kron(rng.integers(0, 256, (32, 40, 3)), np.ones((10, 10, 1)))
    return Image.fromarray(np.clip(tiles + rng.normal(0, 6, tiles.shape), 0, 255).astype(np.uint8))


@pytest.mark.parametrize("contrast", [1.0, 0.2])
def test_blur_lowers_sharpness_and_darkness_does_not(contrast: float) -> None:
    plain = _texture()
    scaled = plain.point(lambda value: int(value * contrast))
    sharp = prepared(plain)["luma_sharpness"]
    assert prepared(scaled)["luma_sharpness"] == pytest.approx(sharp, rel=0.1)
    for radius in (3, 6, 20, 40):
        assert prepared(scaled.filter(ImageFilter.GaussianBlur(radius)))["luma_sharpness"] < 0.36 < sharp


@pytest.mark.parametrize("shade", [0, 128, 255])
@pytest.mark.parametrize("bars", [(40, 40, 0, 0), (0, 0, 60, 60), (30, 30, 30, 30), (0, 50, 0, 0)])
def test_bars_are_found_and_what_is_inside_is_measured(shade: int, bars: tuple[int, ...]) -> None:
    top, bottom, left, right = bars
    inside = np.asarray(_texture())
    framed = np.pad(inside, ((top, bottom), (left, right), (0, 0)), constant_values=shade)
    share = 1 - inside.size / framed.size
    found, plain = (prepared(Image.fromarray(one), "JPEG", resize="none") for one in (framed, inside))
    assert found["border_share"] == pytest.approx(share, abs=0.03)
    assert found["luma_entropy"] == pytest.approx(plain["luma_entropy"], abs=0.1)
    assert found["luma_sharpness"] == pytest.approx(plain["luma_sharpness"], rel=0.1)
    assert abs(found["luma_p5"] - plain["luma_p5"]) <= 4


def test_the_background_of_a_studio_is_no_border() -> None:
    pixels = np.full((300, 240, 3), 250, np.uint8)
    rows, columns = np.mgrid[:300, :240]
    pixels[((rows - 160) / 110) ** 2 + ((columns - 120) / 80) ** 2 < 1] = 90
    assert measured(pixels)["border_share"] == 0


def test_the_canvas_of_padding_is_no_border_and_what_is_cut_off_is_not_measured() -> None:
    image = _texture()
    plain = prepared(image, resize="short", size=160)
    padded = prepared(image, resize="pad", size=200)  # scaled to the same 160 rows
    assert padded == plain
    framed = Image.fromarray(np.pad(np.asarray(image), ((0, 0), (80, 80), (0, 0))))
    assert prepared(framed, size=160)["border_share"] > 0.25
    assert prepared(framed, resize="crop", size=160)["border_share"] == 0


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 2), (16, 16), (31, 500), (20, 20), (17, 127)])
@pytest.mark.parametrize("fill", ["blank", "bars", "noise"])
def test_the_smallest_pictures_have_finite_measures(size: tuple[int, int], fill: str) -> None:
    pixels = np.full((*size, 3), 7, np.uint8)
    if fill == "bars":  # as deep as bars can be
        pixels[size[0] * 4 // 9 : size[0] * 5 // 9 + 1] = 200
        pixels[:, : size[1] * 4 // 9] = 7
    elif fill == "noise":
        pixels = np.random.default_rng(2).integers(0, 256, pixels.shape, np.uint8)
    found = measured(pixels)
    assert 0 <= found["border_share"] < 1
    assert 0 <= found["luma_entropy"] <= 8
    assert found["luma_p5"] <= found["luma_p99"]
    assert (found["luma_sharpness"] is None) == (min(size) < 32 or fill == "blank")


@pytest.mark.parametrize(
    "samples",
    [
        np.random.default_rng(3).integers(0, 4096, (50, 60, 3)).astype(np.uint16),
        np.full((50, 60, 1), np.nan, np.float32),
        np.broadcast_to(np.float32([0.25, np.inf, 0.5] * 20)[:, np.newaxis], (50, 60, 2)),
        np.random.default_rng(4).integers(0, 256, (50, 60, 5), np.uint8),
    ],
    ids=["16 bits", "not a number", "infinite", "five channels"],
)
def test_samples_that_are_no_brightness_have_none_and_all_else_is_finite(samples: npt.NDArray[Any]) -> None:
    grey = in_grey(samples)
    with np.errstate(invalid="ignore"):
        found = columns(Measures.of_samples(samples, grey, grey))
    assert found["luma_p5"] is None
    assert found["luma_p99"] is None
    assert np.isfinite(found["luma_entropy"])
    assert found["luma_sharpness"] is None or np.isfinite(found["luma_sharpness"])
