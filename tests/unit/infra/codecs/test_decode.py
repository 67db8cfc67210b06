"""Decoding by content, orientation, area averaging, encoding."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected, Pixels
from shardmill.infra.codecs.geometry import resize
from shardmill.infra.codecs.jpeg.decode import decode_jpeg_small
from shardmill.infra.preparation import Encoding
from tests.samples.images.forms import gradient, saved


@pytest.mark.parametrize(
    ("format_", "options", "tolerance"),
    [
        ("JPEG", {"quality": 95}, 12),
        ("PNG", {}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("AVIF", {"quality": 95}, 20),
        ("JPEG2000", {}, 0),
    ],
)
def test_formats_by_content(format_: str, options: dict[str, Any], tolerance: int) -> None:
    pixels = gradient()
    data = saved(Image.fromarray(pixels), format_, **options)
    decoded = codecs.decode(data)
    assert decoded.source.format == codecs.sniff(data) == format_.lower()
    assert (decoded.source.height, decoded.source.width, decoded.source.orientation) == (48, 64, 1)
    assert np.abs(decoded.pixels.astype(int) - pixels).max() <= tolerance


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_come_out_upright(format_: str, orientation: int) -> None:
    image = Image.fromarray(gradient())
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {"quality": 100, "subsampling": 0} if format_ == "JPEG" else {}
    options |= {"lossless": True} if format_ == "WEBP" else {}
    data = saved(image, format_, exif=exif, **options)
    decoded = codecs.decode(data)
    with Image.open(io.BytesIO(data)) as reference:
        upright = np.asarray(ImageOps.exif_transpose(reference).convert("RGB"))
    assert decoded.source.orientation == orientation
    assert decoded.pixels.shape == upright.shape
    assert np.abs(decoded.pixels.astype(int) - upright).max() <= (3 if format_ == "JPEG" else 0)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("L", 120), ("1", 255), ("P", 120), ("LA", 120), ("RGBA", 120), ("I;16", 120), ("CMYK", 135)],
)
def test_modes(mode: str, expected: int) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.full((20, 30), 120 << 8, dtype=np.uint16))
    elif mode == "CMYK":
        image = Image.new("CMYK", (30, 20), (120, 120, 120, 0))
    elif mode == "1":
        image = Image.new("1", (30, 20), 1)
    else:
        image = Image.new("L", (30, 20), 120).convert(mode)
    data = saved(image, "JPEG" if mode == "CMYK" else "PNG")
    for channels in (1, 3):
        decoded = codecs.decode(data, channels)
        assert decoded.pixels.shape == (20, 30, channels)
        assert decoded.pixels.dtype == np.uint8
        assert np.abs(decoded.pixels.astype(int) - expected).max() <= 2


def test_alpha_is_composited_on_white() -> None:
    data = saved(Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG")
    assert (codecs.decode(data).pixels == 255).all()


def test_an_animation_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (10, 10), colour) for colour in ("red", "blue")]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert codecs.decode(data).pixels[5, 5].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"just some text, no image", "unknown_format"),
        (saved(Image.fromarray(gradient()), "JPEG")[:700], "truncated"),
        (saved(Image.fromarray(gradient()), "PNG")[:200], "truncated"),
        (b"\xff\xd8\xff\xe0" + b"rubbish" * 20, "corrupt"),
        (saved(Image.fromarray(gradient()), "PNG").replace(b"IHDR", b"IHDX"), "corrupt"),
    ],
)
def test_what_is_no_image_is_rejected_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(data)
    assert caught.value.reason == reason
    assert len(caught.value.message) > 10


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data.replace(b"\xff\xdb", b"12345\xff\xdb", 1), "stray bytes between segments"),
        (lambda data: data[:2] + b"\xff\xe2\x00\x10ICC_PROFILE\x00\x05" + data[2:], "a bad ICC segment"),
    ],
)
def test_damage_in_the_metadata_alone_costs_no_gradient(damage: Any, message: str) -> None:
    data = saved(Image.fromarray(gradient()), "JPEG", quality=95)
    assert damage(data) != data, message
    assert np.array_equal(codecs.decode(damage(data)).pixels, codecs.decode(data).pixels), message


def test_odd_metadata_is_no_warning_and_no_loss() -> None:
    """A truncated EXIF block: Pillow warns, and warnings are errors in the tests."""
    exif = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x09\x01\x12\x00\x03"
    data = saved(Image.fromarray(gradient()), "JPEG", quality=95, exif=exif)
    decoded = codecs.decode(data)
    assert (decoded.source.orientation, decoded.pixels.shape) == (1, (48, 64, 3))


def test_damage_in_the_picture_is_never_passed_over() -> None:
    rng = np.random.default_rng(0)
    data = saved(Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)), "JPEG", quality=95)
    start = data.index(b"\xff\xda") + 200
    damaged = data[:start] + b"\xff\xd5\xff\xd6" + data[start + 300 :]
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(damaged)
    assert caught.value.reason in ("corrupt", "truncated")


def test_a_side_that_jpeg_cannot_hold_is_rejected() -> None:
    with pytest.raises(ImageRejected, match="at most 65,500 pixels a side") as caught:
        codecs.encode_jpeg(np.zeros((1, 65_501, 1), np.uint8), 90)
    assert caught.value.reason == "too_long"
    assert codecs.encode_jpeg(np.zeros((1, 65_500, 1), np.uint8), 90)


@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_too_many_pixels_are_refused_by_the_header(format_: str) -> None:
    data = saved(Image.fromarray(gradient()), format_)
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(data, max_pixels=48 * 64 - 1)
    assert caught.value.reason == "too_many_pixels"
    assert codecs.decode(data, max_pixels=48 * 64).source.width == 64


@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [
        ((400, 533), 256, (256, 341)),
        ((533, 400), 256, (341, 256)),
        ((256, 300), 256, (256, 300)),
        ((100, 100), 256, (100, 100)),
        ((1, 4000), 256, (1, 4000)),
        ((1000, 10), 5, (500, 5)),
        ((10, 11), 1, (1, 1)),
    ],
)
def test_sizes_after_shrinking(size: tuple[int, int], short_side: int, expected: tuple[int, int]) -> None:
    assert codecs.short_side_size(*size, short_side) == expected
    shrunk = codecs.resize_short_side(np.zeros((*size, 3), np.uint8), short_side)
    assert shrunk.shape == (*expected, 3)
    grey = codecs.resize_short_side(np.zeros((*size, 1), np.uint8), short_side)
    assert grey.shape == (*expected, 1)


def area_reference(pixels: Pixels, height: int, width: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Exact area average in float64, as a product of two coverage matrices."""

    def coverage(source: int, target: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        edges = np.arange(target + 1) * source / target
        cells = np.arange(source)
        covered = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
        return np.clip(covered, 0, None) * target / source

    rows, columns = coverage(pixels.shape[0], height), coverage(pixels.shape[1], width)
    return np.stack(
        [rows @ plane @ columns.T for plane in np.moveaxis(pixels.astype(np.float64), 2, 0)], axis=2
    )


def test_a_zone_plate_does_not_alias() -> None:
    y, x = np.mgrid[-300:300, -400:400].astype(np.float64)
    plate = (127.5 + 127.5 * np.cos((x**2 + y**2) * np.pi / 900)).astype(np.uint8)
    shrunk = codecs.resize_short_side(np.repeat(plate[:, :, None], 3, axis=2), 256)
    reference = area_reference(plate[:, :, None], *shrunk.shape[:2])
    error = np.mean((shrunk.astype(np.float64) - reference) ** 2)
    assert 10 * np.log10(255**2 / error) >= 45


@pytest.mark.parametrize("channels", [1, 3])
def test_encoding_is_faithful_and_repeatable(channels: int) -> None:
    pixels = gradient()[:, :, :channels]
    data = codecs.encode_jpeg(pixels, 90)
    assert codecs.encode_jpeg(pixels, 90) == data
    decoded = codecs.decode(data, channels)
    assert decoded.pixels.shape == pixels.shape
    error = np.mean((decoded.pixels.astype(np.float64) - pixels) ** 2)
    assert 10 * np.log10(255**2 / error) > 30
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == ("L" if channels == 1 else "RGB")


@pytest.mark.parametrize(
    ("encoding", "encoder"),
    [("jpeg", {"scaled_decoding"}), ("raw", set()), ("png", {"zlib"}), ("webp", {"webp"})],
)
def test_builds_name_every_library(encoding: Encoding, encoder: set[str]) -> None:
    builds = codecs.codec_builds(encoding)
    always = {"simplejpeg", "turbojpeg", "opencv", "pillow", "littlecms", "heif"}
    always |= {"tifffile", "imagecodecs", "pydicom", "colors"}
    assert set(builds) == always | encoder
    assert all(builds.values())
    assert all(builds[name][0].isdigit() for name in encoder)


@pytest.mark.parametrize(("size", "expected"), [((480, 256), (240, 128)), ((100, 60), (100, 60))])
def test_a_jpeg_is_decoded_small(size: tuple[int, int], expected: tuple[int, int]) -> None:
    pixels = gradient(*size)
    small = decode_jpeg_small(codecs.encode_jpeg(pixels, 95), 112)
    assert small.shape == (*expected, 3)
    wanted = resize(pixels, expected).astype(np.float64)
    assert np.abs(small - wanted).mean() < 2


def test_a_truncated_jpeg_is_not_decoded_small() -> None:
    data = codecs.encode_jpeg(gradient(480, 256), 95)
    with pytest.raises(ImageRejected, match="not a sound JPEG"):
        decode_jpeg_small(data[: len(data) // 2], 112)
