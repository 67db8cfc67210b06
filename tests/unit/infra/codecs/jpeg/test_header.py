"""Facts in the header of a JPEG, and the same JPEG without its metadata."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image, ImageCms

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.jpeg.header import check_header, read_header
from shardmill.infra.codecs.jpeg.segments import without_metadata
from shardmill.infra.codecs.structure.exif import orientation_in
from tests.samples.images.forms import gradient, saved

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def jpeg(**options: Any) -> bytes:
    return saved(Image.fromarray(gradient()), "JPEG", **options)


def subsampled(subsampling: str) -> bytes:
    return bytes(simplejpeg.encode_jpeg(gradient(), colorspace="RGB", colorsubsampling=subsampling))


@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440", "411"])
def test_subsampling(subsampling: str) -> None:
    header = read_header(subsampled(subsampling))
    assert header.subsampling.replace(":", "") == subsampling
    assert header.source_color == f"YCbCr {header.subsampling}"
    assert (header.height, header.width, header.components, header.precision) == (48, 64, 3, 8)


@pytest.mark.parametrize(
    ("mode", "options", "color"),
    [
        ("L", {}, "grey"),
        ("RGB", {}, "YCbCr 4:2:0"),
        ("RGB", {"keep_rgb": True, "subsampling": 0}, "RGB"),
        ("CMYK", {}, "CMYK"),
    ],
)
def test_color_space_is_what_libjpeg_takes_it_for(mode: str, options: dict[str, Any], color: str) -> None:
    data = saved(Image.fromarray(gradient()).convert(mode), "JPEG", **options)
    header = read_header(data)
    assert header.source_color == color
    assert (
        simplejpeg.decode_jpeg_header(data)[2].lower().replace("gray", "grey") == header.color_space.lower()
    )


@pytest.mark.parametrize("orientation", [1, 6, 8])
def test_orientation_and_profile(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    large = SRGB + bytes(150_000)  # in three segments
    header = read_header(jpeg(exif=exif, icc_profile=large, progressive=True))
    assert (header.orientation, header.icc) == (orientation, large)
    assert header.progressive
    assert header.scans == 10


def test_a_profile_that_lacks_a_part_is_empty() -> None:
    data = jpeg(icc_profile=bytes(150_000))
    assert read_header(data.replace(b"ICC_PROFILE\x00\x02", b"XCC_PROFILE\x00\x02")).icc == b""


@pytest.mark.parametrize(
    ("exif", "orientation"),
    [
        (b"", 1),
        (b"MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00", 6),
        (b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x03\x00\x00\x00", 3),
        (b"II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x04\x00\x01\x00\x00\x00\x08\x00\x00\x00", 8),
        (b"II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x09\x00\x00\x00", 1),
        (b"II*\x00\x08\x00\x00\x00\xff\xff\x12\x02\x03\x00\x01\x00\x00\x00\x03\x00\x00\x00", 1),
        (b"II*\x00\xff\xff\xff\xff", 1),
        (b"no EXIF at all", 1),
    ],
)
def test_orientation_in_exif(exif: bytes, orientation: int) -> None:
    assert orientation_in(exif) == orientation


def replaced_frame(data: bytes, at: int, value: int) -> bytes:
    """``data`` with the byte ``at`` (from the frame's marker on) replaced."""
    frame = data.index(b"\xff\xc0")
    return data[: frame + at] + bytes([value]) + data[frame + at + 1 :]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (jpeg()[:200], "truncated"),
        (jpeg().replace(b"\xff\xc0", b"\xff\xec"), "corrupt"),
        (replaced_frame(jpeg(), 4, 12), "unsupported"),
        (replaced_frame(jpeg(), 11, 0x55), "corrupt"),
        (replaced_frame(jpeg(), 9, 200), "corrupt"),
        (jpeg(progressive=True)[:-2] + b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00" * 100, "bomb"),
    ],
)
def test_what_is_refused_by_the_header(data: bytes, reason: str) -> None:
    with pytest.raises(ImageRejected) as caught:
        check_header(read_header(data), codecs.MAX_PIXELS)
    assert caught.value.reason == reason
    assert len(caught.value.message) > 20


@pytest.mark.parametrize("progressive", [False, True])
def test_metadata_goes_and_the_picture_stays(progressive: bool) -> None:
    exif = Image.Exif()
    exif[0x010F] = "Camera of somebody"
    data = jpeg(exif=exif, icc_profile=SRGB, comment=b"by somebody", dpi=(300, 300), progressive=progressive)
    between = data.rindex(b"\xff\xda") if progressive else data.index(b"\xff\xda")
    data = data[:between] + b"\xff\xfe\x00\x0abetween!" + data[between:] + b"a film of somebody"
    clean = without_metadata(data)
    assert clean is not None
    assert clean == without_metadata(jpeg(progressive=progressive))
    assert without_metadata(clean) == clean
    assert clean.endswith(b"\xff\xd9")
    for secret in (b"somebody", b"Exif", b"ICC_PROFILE", b"between"):
        assert secret in data
        assert secret not in clean
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(clean)) as after:
        assert np.array_equal(np.asarray(before), np.asarray(after))


@pytest.mark.parametrize(("mode", "options"), [("CMYK", {}), ("RGB", {"keep_rgb": True, "subsampling": 0})])
def test_without_metadata_the_color_space_is_still_known(mode: str, options: dict[str, Any]) -> None:
    data = saved(Image.fromarray(gradient()).convert(mode), "JPEG", **options)
    clean = without_metadata(data)
    assert clean is not None
    assert read_header(clean).color_space == read_header(data).color_space == mode
