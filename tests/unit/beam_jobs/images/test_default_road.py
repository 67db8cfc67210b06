"""The default road of a JPEG, through planes, against OpenCV's way through pixels."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from shardmill.beam_jobs.config import FilterConfig, ImageConfig
from shardmill.beam_jobs.encode.block_task import convert
from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.jpeg.turbojpeg import library
from tests.samples.images import references
from tests.samples.images.forms import saved
from tests.samples.images.jpegs import sampled_jpeg

pytestmark = pytest.mark.skipif(library() is None, reason="libturbojpeg is not installed: NOT compared")

# Horizontal and vertical sampling factors. TurboJPEG takes the last three for 4:4:4, 4:2:2 and grey.
SAMPLINGS = [
    ((1, 1), (1, 1), (1, 1)),
    ((2, 1), (1, 1), (1, 1)),
    ((2, 2), (1, 1), (1, 1)),
    ((1, 2), (1, 1), (1, 1)),
    ((4, 1), (1, 1), (1, 1)),
    ((2, 2), (2, 1), (2, 1)),
    ((2, 1), (2, 1), (2, 1)),
    ((2, 2), (1, 2), (1, 2)),
    ((2, 2),),
]
# dB. Chroma is scaled at its own size, which differs from what upsampling makes of it.
LEAST_PSNR, LEAST_BELOW_PIXELS = 28, 8


def waves(height: int, width: int) -> Pixels:
    """uint8 [H, W, 3]: waves of about 60 pixels in each channel of YCbCr."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64) / 10
    planes = [np.sin(x + 0.3 * y), np.sin(0.7 * y - 0.4 * x), np.sin(0.6 * x + 0.5 * y)]
    return np.rint(127.5 + 90 * np.stack(planes, axis=-1)).astype(np.uint8)


def opencv(data: bytes) -> Pixels:
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB), np.uint8)


def check(data: bytes, options: dict[str, Any]) -> str:
    """Compare what is stored with OpenCV's picture; return the way that it was stored."""
    stored = convert(data, ImageConfig(quality=95, **options), FilterConfig())
    found = opencv(stored.image)
    expected = cv2.resize(opencv(data), (stored.width, stored.height), interpolation=cv2.INTER_AREA)
    encoded = cv2.imencode(".jpg", expected[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
    through_pixels = references.psnr(opencv(encoded.tobytes()), expected)
    assert found.shape == expected.shape
    assert references.psnr(found, expected) > max(LEAST_PSNR, through_pixels - LEAST_BELOW_PIXELS)
    return stored.stored_from


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("size", [(120, 160), (119, 157), (240, 96)], ids=str)
@pytest.mark.parametrize("options", [{"size": 64}, {"size": 100}, {"resize": "none"}], ids=str)
def test_samplings_and_sizes(
    sampling: tuple[tuple[int, int], ...], size: tuple[int, int], options: dict[str, Any]
) -> None:
    planes = list(np.moveaxis(waves(*size), 2, 0))[: len(sampling)]
    assert check(sampled_jpeg(planes, sampling), options) == "planes"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("sampling", [0, 1, 2])
@pytest.mark.parametrize("size", [(120, 160), (119, 157)], ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_orientations(orientation: int, sampling: int, size: tuple[int, int], mode: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = Image.fromarray(waves(*size)).convert(mode)
    options: dict[str, Any] = {"subsampling": sampling} if mode == "RGB" else {}
    check(saved(picture, "JPEG", quality=95, exif=exif, **options), {"size": 64})


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("options", [{"resize": "crop", "size": 64}, {"size": 50, "upscale": True}], ids=str)
def test_progressive_files_and_other_sizes(progressive: bool, options: dict[str, Any]) -> None:
    data = saved(Image.fromarray(waves(128, 128)), "JPEG", quality=95, progressive=progressive)
    assert check(data, options) == "planes"


def test_passthrough_keeps_only_what_training_reads() -> None:
    options = ImageConfig(resize="none", passthrough=True)
    planes = list(np.moveaxis(waves(48, 64), 2, 0))
    usual = convert(sampled_jpeg(planes, SAMPLINGS[1]), options, FilterConfig())
    unusual = convert(sampled_jpeg(planes, ((3, 1), (1, 1), (1, 1))), options, FilterConfig())
    assert (usual.stored_from, unusual.stored_from) == ("source", "pixels")
    for stored in (usual, unusual):
        assert simplejpeg.decode_jpeg(stored.image).shape == (48, 64, 3)
