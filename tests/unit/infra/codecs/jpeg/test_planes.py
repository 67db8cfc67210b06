"""The way from JPEG to JPEG through planes: what it makes, and when it steps aside."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.formats import apply_orientation
from shardmill.infra.codecs.geometry import geometry, halve, resize
from shardmill.infra.codecs.jpeg.planes import (
    cuts_exactly,
    decoding_scale,
    fit,
    luma_of_picture,
    turn_upright,
    turns_exactly,
)
from shardmill.infra.codecs.jpeg.turbojpeg import (
    LIBRARY_VARIABLE,
    Planes,
    build,
    decode_planes,
    encode_planes,
    library,
    read_planar_header,
)
from shardmill.infra.codecs.measures import pixel_statistics, plane_statistics
from shardmill.infra.codecs.prepare import fit_pixels
from shardmill.infra.preparation import Sizing
from tests.samples.images import references
from tests.samples.images.forms import gradient, saved
from tests.samples.images.photos import picture

WHITE = (255, 255, 255)

needs_library = pytest.mark.skipif(
    library() is None, reason="libturbojpeg is not installed (Debian: apt install libturbojpeg0)"
)
pytestmark = needs_library


def jpeg(pixels: Pixels, subsampling: str = "420", quality: int = 100) -> bytes:
    data: bytes = simplejpeg.encode_jpeg(pixels, quality=quality, colorsubsampling=subsampling)
    return data


def smooth(height: int, width: int) -> Pixels:
    """uint8 [H, W, 3]: waves of about 60 pixels, which half as many chroma samples hold."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64) / 10
    planes = [np.sin(x + 0.3 * y), np.sin(0.7 * y - 0.4 * x), np.sin(0.6 * x + 0.5 * y)]
    return np.rint(127.5 + 110 * np.stack(planes, axis=-1)).astype(np.uint8)


def planes_of(data: bytes, scale: int = 1) -> Planes:
    header = read_planar_header(data)
    assert header is not None
    planes = decode_planes(data, header, scale)
    assert planes is not None
    return planes


def colours(planes: Planes) -> Pixels:
    """uint8 [H, W, 3], for comparing; OpenCV's YCrCb is that of JFIF."""
    height, width = planes.y.shape
    assert planes.cb is not None
    assert planes.cr is not None
    chroma = [
        np.repeat(np.repeat(plane, planes.vertical, 0), planes.horizontal, 1)[:height, :width]
        for plane in (planes.cr, planes.cb)
    ]
    return np.asarray(cv2.cvtColor(np.stack([planes.y, *chroma], axis=-1), cv2.COLOR_YCrCb2RGB), np.uint8)


@pytest.mark.parametrize(
    ("subsampling", "sample"),
    [("444", (1, 1)), ("422", (1, 2)), ("420", (2, 2)), ("440", (2, 1)), ("411", (1, 4))],
)
@pytest.mark.parametrize("size", [(48, 64), (47, 63), (1, 1), (3, 200), (533, 400)])
def test_planes_are_those_of_the_picture(
    subsampling: str, sample: tuple[int, int], size: tuple[int, int]
) -> None:
    pixels = smooth(*size)
    data = jpeg(pixels, subsampling)
    header = read_planar_header(data)
    assert header is not None
    assert (header.height, header.width, header.sample) == (*size, sample)
    planes = planes_of(data)
    luma = np.asarray(Image.fromarray(pixels).convert("YCbCr"))[:, :, 0]
    assert np.abs(planes.y.astype(int) - luma).max() <= 3
    small = fit(planes, geometry(*size, Sizing("none", 8, 8)), 3, WHITE)
    assert small.cb is not None
    assert small.cb.shape == (-(-size[0] // 2), -(-size[1] // 2))
    decoded = simplejpeg.decode_jpeg(encode_planes(small, 95))
    assert decoded.shape == (*size, 3)
    assert references.psnr(decoded, pixels) > (33 if min(size) > 40 else 20)


@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440", "411"])
@pytest.mark.parametrize("to", [(341, 256), (100, 75), (530, 399)])
def test_scaled_planes_are_those_of_the_exact_filter(subsampling: str, to: tuple[int, int]) -> None:
    data = jpeg(smooth(533, 400), subsampling, 90)
    planes = planes_of(data)
    small = fit(planes, geometry(533, 400, Sizing("short", to[1], to[1])), 3, WHITE)
    assert small.y.shape == (round(533 * to[1] / 400), to[1])
    assert references.psnr(small.y, references.area(planes.y, *small.y.shape)) > 55
    pixels = simplejpeg.decode_jpeg(data)
    reference = references.area(pixels, *small.y.shape)
    stored = simplejpeg.decode_jpeg(encode_planes(small, 100))
    through_pixels = simplejpeg.decode_jpeg(jpeg(resize(pixels, small.y.shape)))
    # Chroma is placed to half a sample of the source; that tells where waves are fine and hardly scaled.
    assert references.psnr(stored, reference) > min(37, references.psnr(through_pixels, reference) - 3.5)


def test_a_zone_plate_does_not_alias() -> None:
    plate = references.zone_plate(640, 640)
    data = jpeg(np.repeat(plate[:, :, np.newaxis], 3, axis=2), "444")
    small = fit(planes_of(data), geometry(640, 640, Sizing("short", 256, 256)), 3, WHITE)
    stored = simplejpeg.decode_jpeg(encode_planes(small, 100))
    reference = references.area(simplejpeg.decode_jpeg(data), 256, 256)
    assert references.psnr(stored, reference) >= 45


@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_planes_are_those_of_turned_pixels(subsampling: str, orientation: int) -> None:
    data = jpeg(gradient(48, 64), subsampling)
    planes = planes_of(data)
    assert turns_exactly(planes, orientation)
    upright = turn_upright(planes, orientation)
    expected = apply_orientation(colours(planes), orientation)
    assert np.array_equal(colours(upright), expected)


@pytest.mark.parametrize(
    ("size", "subsampling", "turned"),
    [
        ((48, 64), "420", {1, 2, 3, 4, 5, 6, 7, 8}),
        ((47, 64), "420", {1, 2, 5, 8}),
        ((48, 63), "420", {1, 4, 5, 6}),
        ((47, 63), "420", {1, 5}),
        ((47, 63), "444", {1, 2, 3, 4, 5, 6, 7, 8}),
        ((47, 64), "422", {1, 2, 3, 4, 5, 6, 7, 8}),
    ],
)
def test_a_chroma_sample_that_sticks_out_is_not_turned_to_the_front(
    size: tuple[int, int], subsampling: str, turned: set[int]
) -> None:
    planes = planes_of(jpeg(gradient(*size), subsampling))
    assert {number for number in range(1, 9) if turns_exactly(planes, number)} == turned


@pytest.mark.parametrize("mode", ["pad", "crop"])
@pytest.mark.parametrize("size", [(90, 130), (91, 131), (30, 40)])
def test_canvas_and_window_on_planes_are_those_on_pixels(mode: Any, size: tuple[int, int]) -> None:
    planes = planes_of(jpeg(smooth(*size)))
    to = geometry(*size, Sizing(mode, 64, 64))
    assert cuts_exactly(planes, to.window)
    found = colours(fit(planes, to, 3, (200, 30, 60)))
    expected = fit_pixels(colours(planes), to, "area", (200, 30, 60))
    assert found.shape == expected.shape == (64, 64, 3)
    assert references.psnr(found, expected) > 30
    if mode == "pad":
        assert np.abs(found[0, 0].astype(int) - (200, 30, 60)).max() <= 2


SAMPLINGS = {"444": (1, 1), "422": (1, 2), "420": (2, 2), "440": (2, 1), "411": (1, 4)}
WHOLE = Sizing("short", 31, 31), Sizing("pad", 36, 44), Sizing("crop", 29, 37), Sizing("long", 33, 33)


@pytest.mark.parametrize(
    ("to", "subsampling", "orientation", "channels", "scale"),
    [
        ((4000, 3000), "420", 1, 3, 4),
        ((3000, 4000), "420", 6, 3, 4),
        ((6048, 8064), "420", 1, 3, 8),
        ((1800, 2400), "420", 1, 3, 2),
        ((1780, 2400), "420", 1, 3, 1),
        ((533, 400), "420", 1, 3, 1),
        ((3000, 4000), "411", 1, 3, 1),  # chroma has a quarter of the columns
        ((3000, 4000), "411", 1, 1, 4),
        ((4000, 3000), "411", 6, 3, 1),
    ],
)
def test_planes_are_decoded_scaled_if_enough_samples_are_left(
    to: tuple[int, int], subsampling: str, orientation: int, channels: int, scale: int
) -> None:
    upright = geometry(*to, Sizing("short", 256, 256))
    assert decoding_scale(upright, SAMPLINGS[subsampling], orientation, channels) == scale


@pytest.mark.parametrize("scale", [2, 4, 8])
@pytest.mark.parametrize(
    ("subsampling", "orientation"),
    [("420", 1), ("420", 3), ("420", 5), ("420", 8), ("444", 7), ("422", 6), ("440", 2), ("411", 4)],
)
def test_scaled_planes_lie_where_those_of_the_whole_picture_lie(
    subsampling: str, orientation: int, scale: int
) -> None:
    """A sample covers parts of pixels at all edges. Nothing may move by that, be it cut, turned or padded."""
    height, width = 31 * scale * 3 + 1, 43 * scale * 3 + 3
    y, x = np.mgrid[0:height, 0:width].astype(np.float64) / scale
    waves = [np.sin(x / 45 + y / 90), np.sin(x / 80 - y / 50), np.sin(x / 70 + y / 40)]
    pixels = np.rint(127.5 + 100 * np.stack(waves, axis=-1)).astype(np.uint8)
    data = jpeg(pixels, subsampling)
    upright = apply_orientation(np.asarray(Image.open(io.BytesIO(data))), orientation)
    planes = turn_upright(planes_of(data, scale), orientation)
    luma = luma_of_picture(planes)
    assert luma.shape == tuple(side // scale for side in upright.shape[:2])
    grey = cv2.cvtColor(upright, cv2.COLOR_RGB2GRAY)
    assert np.abs(luma - references.area(grey, *luma.shape)).mean() < 0.6
    for sizing in WHOLE:
        to = geometry(*upright.shape[:2], sizing)
        top, left, *size = to.window
        window = upright[top : top + size[0], left : left + size[1]].astype(np.float64)
        expected = references.area(window, *to.scaled)
        found = simplejpeg.decode_jpeg(encode_planes(fit(planes, to, 3, WHITE), 100)).astype(np.float64)
        found = found[to.offset[0] :, to.offset[1] :][: to.scaled[0], : to.scaled[1]]
        # The outermost pixels share chroma with the canvas.
        assert np.abs(found - expected)[2:-2, 2:-2].mean(axis=(0, 1)).max() < 0.85


def test_grey_becomes_grey_or_colourless() -> None:
    data: bytes = simplejpeg.encode_jpeg(
        gradient()[:, :, :1].copy(), colorspace="GRAY", colorsubsampling="Gray"
    )
    planes = planes_of(data)
    assert planes.cb is None
    to = geometry(48, 64, Sizing("short", 24, 24))
    assert simplejpeg.decode_jpeg_header(encode_planes(fit(planes, to, 1, WHITE), 90))[2] == "Gray"
    stored = encode_planes(fit(planes, to, 3, WHITE), 90)
    assert simplejpeg.decode_jpeg_header(stored)[2:] == ("YCbCr", "420")
    assert np.ptp(simplejpeg.decode_jpeg(stored).astype(int), axis=2).max() == 0


def test_of_colour_only_luma_is_kept_where_grey_is_wanted() -> None:
    small = fit(planes_of(jpeg(picture(1))), geometry(48, 64, Sizing("none", 8, 8)), 1, WHITE)
    assert small.cb is None
    assert simplejpeg.decode_jpeg(encode_planes(small, 90), colorspace="GRAY").shape == (48, 64, 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-20],
        lambda data: data[:-2],
        lambda data: data[:2] + b"stray" + data[2:],
        lambda data: data[:400] + bytes(reversed(data[400:900])) + data[900:],
        lambda data: data[:30],
        lambda data: b"",
    ],
)
def test_whatever_is_amiss_steps_aside(damage: Any) -> None:
    data = damage(jpeg(picture(1, 96, 128), quality=90))
    header = read_planar_header(data)
    assert header is None or {decode_planes(data, header, scale) for scale in (1, 2, 4, 8)} == {None}
    assert decode_planes(jpeg(picture(2)), read_planar_header(jpeg(picture(2)))) is not None  # type: ignore[arg-type]


def test_other_colour_spaces_have_no_planes() -> None:
    image = Image.fromarray(gradient())
    assert read_planar_header(saved(image.convert("CMYK"), "JPEG")) is None
    assert read_planar_header(saved(image, "JPEG", keep_rgb=True)) is None
    assert read_planar_header(saved(image, "PNG")) is None


def test_large_images_and_small_ones_in_turn() -> None:
    """Memory that a thread keeps grows, and what is too large for it comes and goes."""
    large = jpeg(np.zeros((6000, 4500, 3), np.uint8), quality=50)
    small = jpeg(picture(3))
    before = planes_of(small).y.copy()
    assert planes_of(large).y.shape == (6000, 4500)
    assert np.array_equal(planes_of(small).y, before)
    assert simplejpeg.decode_jpeg(encode_planes(planes_of(large), 50)).shape == (6000, 4500, 3)


def test_threads_do_not_share_what_they_decode() -> None:
    files = [jpeg(picture(number, 200, 300)) for number in range(8)]
    alone = [encode_planes(planes_of(data), 90) for data in files]
    found: dict[int, list[bytes]] = {}

    def work(number: int) -> None:
        found[number] = [encode_planes(planes_of(files[number]), 90) for _ in range(40)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(set(found[number]) == {alone[number]} for number in range(8))


def test_a_worst_case_fits_its_buffer() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (257, 259, 3), dtype=np.uint8)
    planes = Planes(noise[:, :, 0].copy(), noise[:129, :130, 1].copy(), noise[:129, :130, 2].copy(), 2, 2)
    assert simplejpeg.decode_jpeg(encode_planes(planes, 100)).shape == (257, 259, 3)


@pytest.mark.parametrize("subsampling", ["420", "444"])
@pytest.mark.parametrize("seed", range(4))
def test_statistics_of_planes_are_those_of_the_pixels(subsampling: str, seed: int) -> None:
    planes = planes_of(jpeg(picture(seed, 301, 203), subsampling))
    small = fit(planes, geometry(301, 203, Sizing("none", 8, 8)), 3, WHITE)
    mean, deviation = plane_statistics(small, halve(small.y))
    expected = pixel_statistics(simplejpeg.decode_jpeg(encode_planes(small, 100)))
    assert np.abs(np.subtract(mean, expected[0])).max() < 1
    assert np.abs(np.subtract(deviation, expected[1])).max() < 1.5


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 2), (5, 1)])
def test_statistics_of_tiny_pictures(size: tuple[int, int]) -> None:
    small = fit(
        planes_of(jpeg(np.full((*size, 3), 90, np.uint8))), geometry(*size, Sizing("none", 8, 8)), 3, WHITE
    )
    mean, deviation = plane_statistics(small, halve(small.y))
    assert np.abs(np.subtract(mean, 90)).max() < 2
    assert max(deviation) < 1
    grey, _ = plane_statistics(Planes(small.y), halve(small.y))
    assert len(grey) == 1


def test_the_build_names_a_version_and_can_be_done_without() -> None:
    assert build()[0].isdigit() or build().startswith("sha256 ")
    code = (
        "from shardmill.infra.codecs import codec_builds;"
        "from shardmill.infra.codecs.jpeg.turbojpeg import library;"
        "print(library(), codec_builds('jpeg')['turbojpeg'])"
    )
    for value in ("none", "/nowhere/libturbojpeg.so"):
        environment = {**os.environ, LIBRARY_VARIABLE: value}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, check=True, text=True, capture_output=True)
        assert done.stdout == "None none\n"


@pytest.mark.parametrize(("height", "width"), [(16, 17), (17, 16), (17, 17), (1, 1), (31, 47), (16, 16)])
def test_what_lies_in_memory_around_a_plane_shows_in_no_file(height: int, width: int) -> None:
    """With odd sides the library reads whole chroma samples, beyond the luma plane that it is given."""
    files = set()
    for around in (0, 128, 255):
        memory = np.full((height + 4, width + 4), around, np.uint8)
        luma = memory[:height, :width]
        luma[:] = np.arange(height * width, dtype=np.uint32).reshape(height, width) * 7 % 251
        chroma = np.full((-(-height // 2), -(-width // 2)), 100, np.uint8)
        files.add(encode_planes(Planes(luma, chroma, chroma, 2, 2), 90))
    assert len(files) == 1
