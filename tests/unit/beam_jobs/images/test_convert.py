"""Source bytes to the stored form: which way they go, and that all ways lead to the same picture."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from shardmill.beam_jobs.config import FilterConfig, ImageConfig
from shardmill.beam_jobs.encode.block_task import ImageFiltered, convert
from shardmill.infra.codecs import ImageRejected, decode
from shardmill.infra.codecs import prepare as preparing
from shardmill.infra.codecs.jpeg.decode import decode_jpeg_small
from shardmill.infra.codecs.jpeg.turbojpeg import library
from shardmill.infra.codecs.prepare import StoredImage
from tests.samples.images import references
from tests.samples.images.forms import gradient, saved
from tests.samples.images.photos import picture

needs_library = pytest.mark.skipif(library() is None, reason="libturbojpeg is not installed")


def stored(data: bytes, **config: Any) -> StoredImage:
    return convert(data, ImageConfig.model_validate({"size": 32, **config}), FilterConfig())


def photo(height: int = 96, width: int = 130, **options: Any) -> bytes:
    """A few large spots, of colours that are not so strong that decoding clips them."""
    spots = Image.fromarray((64 + picture(7, 40, 40) * 0.5).astype(np.uint8))
    image = spots.resize((width, height), Image.Resampling.BICUBIC)
    return saved(image, "JPEG", **({"quality": 95} | options))


def profile(name: Any) -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()


def oriented(number: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = number
    return exif


@needs_library
@pytest.mark.parametrize(
    ("data", "config", "way", "color"),
    [
        (photo(), {}, "planes", "YCbCr 4:2:0"),
        (photo(subsampling=0), {}, "planes", "YCbCr 4:4:4"),
        (photo(progressive=True), {}, "planes", "YCbCr 4:2:0"),
        (saved(Image.fromarray(gradient()).convert("L"), "JPEG"), {}, "planes", "grey"),
        (saved(Image.fromarray(gradient()).convert("L"), "JPEG"), {"channels": 1}, "planes", "grey"),
        (photo(), {"channels": 1}, "planes", "YCbCr 4:2:0"),
        (photo(exif=oriented(6)), {}, "planes", "YCbCr 4:2:0"),
        (photo(95, 131, exif=oriented(3)), {}, "pixels", "YCbCr 4:2:0"),
        (photo(), {"resize": "crop", "height": 20, "width": 50}, "planes", "YCbCr 4:2:0"),
        (photo(), {"resize": "pad", "background": "#ff0000"}, "planes", "YCbCr 4:2:0"),
        (photo(), {"resample": "lanczos"}, "pixels", "YCbCr 4:2:0"),
        (photo(), {"encoding": "png"}, "pixels", "YCbCr 4:2:0"),
        (photo(icc_profile=profile("sRGB")), {}, "planes", "YCbCr 4:2:0"),
        (saved(Image.fromarray(gradient()).convert("CMYK"), "JPEG"), {}, "pixels", "CMYK"),
        (saved(Image.fromarray(gradient()), "JPEG", keep_rgb=True), {}, "pixels", "RGB"),
        (saved(Image.fromarray(gradient()), "PNG"), {}, "pixels", "RGB"),
        (photo(), {"passthrough": True}, "planes", "YCbCr 4:2:0"),
        (photo(), {"passthrough": True, "resize": "none"}, "source", "YCbCr 4:2:0"),
        (photo(32, 40), {"passthrough": True}, "source", "YCbCr 4:2:0"),
        (photo(32, 40), {"passthrough": True, "resample": "lanczos"}, "source", "YCbCr 4:2:0"),
        (photo(32, 40), {"passthrough": True, "channels": 1}, "planes", "YCbCr 4:2:0"),
        (
            photo(32, 40),
            {
                "passthrough": True,
                "resize": "crop",
                "height": 32,
                "width": 38,
            },  # of which none is at the left
            "planes",
            "YCbCr 4:2:0",
        ),
        (photo(32, 40), {"passthrough": True, "encoding": "png"}, "pixels", "YCbCr 4:2:0"),
        (photo(32, 40, exif=oriented(8)), {"passthrough": True}, "planes", "YCbCr 4:2:0"),
    ],
)
def test_the_way_that_an_image_goes(data: bytes, config: dict[str, Any], way: str, color: str) -> None:
    found = stored(data, **config)
    assert (found.stored_from, found.source.color) == (way, color)
    pixels = decode(found.image, config.get("channels", 3)).pixels
    assert pixels.shape[:2] == (found.height, found.width)


@needs_library
@pytest.mark.parametrize("size", [(96, 130), (95, 131), (533, 400), (30, 20), (1, 7)])
@pytest.mark.parametrize("orientation", [1, 5, 6])
@pytest.mark.parametrize("config", [{}, {"resize": "crop"}, {"resize": "pad", "background": "#204060"}])
def test_planes_and_pixels_lead_to_the_same_picture(
    size: tuple[int, int], orientation: int, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = photo(*size, exif=oriented(orientation), subsampling=2)
    one = stored(data, quality=95, **config)
    monkeypatch.setattr(preparing, "library", lambda: None)
    other = stored(data, quality=95, **config)
    assert other.stored_from == "pixels"
    assert (one.height, one.width, one.source) == (other.height, other.width, other.source)
    pixels = decode(one.image).pixels
    assert references.psnr(pixels, decode(other.image).pixels.astype(float)) > 32
    if min(size) >= 20:
        for name in ("pixel_mean", "pixel_std"):
            mine, others = getattr(one.measures, name), getattr(other.measures, name)
            assert np.abs(np.subtract(mine, others)).max() < 2
        # From so few spots a hash has bits that rounding decides, so the thumbnails are compared.
        assert np.abs(one.measures.thumbnails[0].astype(int) - other.measures.thumbnails[0]).max() <= 1


@needs_library
def test_filters_judge_only_whole_images() -> None:
    rules = FilterConfig(max_aspect=1.2)
    with pytest.raises(ImageFiltered):
        convert(photo(), ImageConfig(), rules)
    with pytest.raises(ImageRejected):
        convert(photo()[:1500], ImageConfig(), rules)


@needs_library
def test_a_truncated_jpeg_is_told_by_the_way_through_pixels() -> None:
    data = photo()
    with pytest.raises(ImageRejected) as caught:
        stored(data[: len(data) * 2 // 3])
    assert caught.value.reason == "truncated"
    salvaged = stored(data[: len(data) * 2 // 3], allow_truncated=True)
    assert (salvaged.source.salvaged, salvaged.stored_from) == (True, "pixels")


def test_what_passes_through_is_the_source_without_its_metadata() -> None:
    data = photo(32, 40, exif=oriented(1), comment=b"51.5 N")
    found = stored(data, passthrough=True)
    assert b"51.5 N" in data
    assert b"51.5 N" not in found.image
    assert np.array_equal(decode(found.image).pixels, decode(data).pixels)
    grey = saved(Image.fromarray(gradient(20, 20)).convert("L"), "PNG")
    assert stored(grey, passthrough=True, encoding="png", channels=1).stored_from == "source"
    assert stored(grey, passthrough=True, encoding="png").stored_from == "pixels"
    transparent = saved(Image.fromarray(gradient(20, 20)).convert("RGBA"), "PNG")
    assert stored(transparent, passthrough=True, encoding="png").stored_from == "pixels"


def test_a_record_of_a_jpeg_with_stray_bytes_is_a_sound_jpeg() -> None:
    data = photo(32, 40)
    found = stored(data[:-2] + bytes(range(1, 60)) + data[-2:], passthrough=True)
    assert found.stored_from == "pixels"
    assert decode_jpeg_small(found.image, 32).shape == (32, 40, 3)


def test_the_encodings() -> None:
    data = saved(Image.fromarray(picture(1, 64, 64)), "PNG")
    assert len(stored(data, encoding="raw").image) == 32 * 32 * 3
    assert len(stored(data, encoding="raw", channels=1).image) == 32 * 32
    for encoding, format_ in (("png", "PNG"), ("webp", "WEBP"), ("jpeg", "JPEG")):
        for channels in (1, 3):
            file = stored(data, encoding=encoding, channels=channels).image
            with Image.open(io.BytesIO(file)) as image:
                assert image.format == format_
                assert image.size == (32, 32)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"resize": "none", "encoding": "webp"}, "too_long"),
        ({"size": 8192, "upscale": True, "max_pixels": 1 << 24, "encoding": "png"}, "too_many_pixels"),
        ({"size": 4096, "upscale": True}, "too_long"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_memory_is_taken(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ImageRejected) as caught:
        stored(saved(Image.fromarray(gradient(9, 17_000)), "PNG"), **config)
    assert caught.value.reason == reason


def test_the_statistics_are_those_of_what_is_stored() -> None:
    for config in ({}, {"channels": 1}, {"encoding": "png"}, {"resize": "pad", "background": "#000000"}):
        found = stored(photo(300, 200), quality=100, **config)
        pixels = decode(found.image, int(config.get("channels", 3))).pixels.astype(float)
        assert np.abs(pixels.mean(axis=(0, 1)) - found.measures.pixel_mean).max() < 1
        assert np.abs(pixels.std(axis=(0, 1)) - found.measures.pixel_std).max() < 2
