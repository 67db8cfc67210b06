"""Every format and mode against OpenCV.

Above the compression libraries its decoders share no code with ours, and for BMP and GIF none at all. Where
OpenCV is known to be wrong, the reason stands beside the file's name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs import DecodedImage, ImageRejected, Pixels
from tests.samples.images.forms import gradient_image, saved

ODD = Path(__file__).parents[4] / "../shared/data/odd"

# Of these OpenCV 5.0 makes other pixels. ImageMagick or libvips agree with us on each.
OPENCV_DIFFERS = {
    "hopper.Lab.tif": "OpenCV reads the signed a and b as unsigned",
    "lab-green.tif": "as above",
    "lab-red.tif": "as above",
    "lab.tif": "as above",
    "mmap_error.bmp": "its header points into the palette; Pillow takes the pixels from behind it",
    "rgb16-565.bmp": "OpenCV's white of 5 bits is 248",
    "rgb16-565pal.bmp": "as above",
    "rgb16.bmp": "as above",
    "rgb32h52.bmp": "OpenCV ignores the masks of a header of 52 bytes",
}


def opencv(data: bytes) -> Pixels | None:
    """Return uint8 [H, W, 3], or None if OpenCV refuses the file."""
    try:
        decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    except cv2.error:
        return None
    return None if decoded is None else np.asarray(decoded, np.uint8)


def grey_16(low_bits: int = 0) -> Image.Image:
    samples = np.asarray(gradient_image().convert("L")).astype(np.uint16) << 8 | low_bits
    return Image.fromarray(samples)


def picture(mode: str, height: int = 48, width: int = 61) -> Image.Image:
    return grey_16() if mode == "I;16" else gradient_image(height=height, width=width).convert(mode)


CASES: list[tuple[str, str, dict[str, Any]]] = [
    *(("BMP", mode, {}) for mode in ("1", "L", "P", "RGB")),
    *(("GIF", mode, {"interlace": interlace}) for mode in ("1", "L", "P", "RGB") for interlace in (0, 1)),
    *(("PNG", mode, {}) for mode in ("1", "L", "P", "RGB", "I;16")),
    *(("PNG", "P", {"bits": bits}) for bits in (1, 2, 4)),
    *(
        ("TIFF", mode, {"compression": compression})
        for mode in ("L", "RGB", "I;16")
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits")
    ),
    *(("TIFF", "1", {"compression": compression}) for compression in ("raw", "group3", "group4", "packbits")),
    *(("TIFF", mode, {}) for mode in ("P", "CMYK")),
    ("TIFF", "RGB", {"compression": "tiff_lzw", "tiffinfo": {317: 2}}),
    ("TIFF", "RGB", {"compression": "jpeg", "quality": 90}),
    ("TIFF", "RGB", {"big_tiff": True}),
    ("TIFF", "RGB", {"strip_size": 500}),
    ("WEBP", "RGB", {"lossless": True}),
    ("WEBP", "RGB", {"quality": 70}),
    ("JPEG2000", "RGB", {"irreversible": False}),
    ("JPEG2000", "L", {}),
    ("JPEG2000", "RGB", {"no_jp2": True}),
    ("JPEG2000", "RGB", {"irreversible": True, "quality_layers": [20]}),
    ("AVIF", "RGB", {"quality": 80}),
    ("AVIF", "RGB", {"quality": 80, "subsampling": "4:4:4"}),
    *(("JPEG", "RGB", {"subsampling": sampling, "progressive": p}) for sampling in (0, 1, 2) for p in (0, 1)),
    ("JPEG", "L", {"quality": 60}),
    ("JPEG", "RGB", {"restart_marker_blocks": 2}),
    ("JPEG", "RGB", {"keep_rgb": True, "subsampling": 0}),
    ("JPEG", "CMYK", {"quality": 95}),
]
# Levels: inks are multiplied, and chroma is converted, with different rounding.
TOLERANCES = {("TIFF", "CMYK"): 2, ("JPEG", "CMYK"): 2, ("AVIF", "RGB"): 2}


@pytest.mark.parametrize(("format_", "mode", "options"), CASES, ids=str)
@pytest.mark.parametrize("size", [(48, 61), (1, 1), (7, 130)], ids=str)
def test_every_format_and_mode(
    format_: str, mode: str, options: dict[str, Any], size: tuple[int, int]
) -> None:
    data = saved(picture(mode, *size), format_, **options)
    expected = opencv(data)
    assert expected is not None
    decoded = codecs.decode(data).pixels
    assert decoded.shape == expected.shape
    assert np.abs(decoded.astype(int) - expected).max() <= TOLERANCES.get((format_, mode), 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("sampling", [0, 1, 2])
@pytest.mark.parametrize("size", [(48, 61), (47, 60)], ids=str)
def test_jpegs_are_turned_alike(orientation: int, sampling: int, size: tuple[int, int]) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(picture("RGB", *size), "JPEG", subsampling=sampling, exif=exif)
    assert np.array_equal(codecs.decode(data).pixels, opencv(data))


@pytest.mark.skipif(not ODD.is_dir(), reason=f"{ODD} is not there: odd images are NOT compared")
def test_the_odd_images() -> None:
    compared, differing = 0, {}
    for path in sorted(ODD.rglob("*.*")):
        data = path.read_bytes()
        found = decoded_or_none(data)
        # OpenCV knows no profiles, turns and composites only some formats, and shows an animation's frames.
        if (
            found is None
            or found.source.icc_profile
            or found.source.had_alpha
            or found.source.orientation != 1
            or b"acTL" in data
        ):
            continue
        expected = opencv(data)
        if expected is None:
            continue
        compared += 1
        alike = found.pixels.shape == expected.shape and differs_by(found.pixels, expected) < 1
        if not alike:
            differing[path.name] = found.source.color
    assert set(differing) == set(OPENCV_DIFFERS)
    assert compared > 500


def decoded_or_none(data: bytes) -> DecodedImage | None:
    try:
        return codecs.decode(data)
    except ImageRejected:
        return None


def differs_by(one: Pixels, other: Pixels) -> float:
    """Mean difference (levels)."""
    return float(np.abs(one.astype(int) - other).mean())


@pytest.mark.parametrize("ending", [".png", ".tiff"])
def test_colours_of_16_bits(ending: str) -> None:
    deep = np.repeat(np.arange(0, 65_536, 37, dtype=np.uint16)[:1764].reshape(42, 42, 1), 3, axis=2)
    deep[:, :, 1] = deep[::-1, :, 1]
    data = cv2.imencode(ending, deep)[1].tobytes()
    assert np.abs(codecs.decode(data).pixels.astype(int) - opencv(data)).max() <= 1
