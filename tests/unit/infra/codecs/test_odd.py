"""The odd, broken and hostile images beside the repository: each is decoded, or refused with a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from shardmill.beam_jobs.reasons import REASONS
from shardmill.infra import codecs
from shardmill.infra.codecs import DecodedImage, ImageRejected
from shardmill.infra.codecs.metadata import without_metadata

ODD = Path(__file__).parents[4] / "../shared/data/odd"

pytestmark = pytest.mark.skipif(not ODD.is_dir(), reason=f"{ODD} is not there: odd images are NOT tested")


def outcome(path: Path, allow_truncated: bool = False) -> DecodedImage | ImageRejected:
    try:
        return codecs.decode(path.read_bytes(), allow_truncated=allow_truncated)
    except ImageRejected as rejected:
        return rejected


def test_every_file_is_decoded_or_refused_with_a_reason_that_a_person_understands() -> None:
    reasons: Counter[str] = Counter()
    for path in sorted(ODD.rglob("*.*")):
        found = outcome(path)
        if isinstance(found, ImageRejected):
            assert found.reason in REASONS, path
            assert len(found.message) > 15, path
            reasons[found.reason] += 1
        else:
            stored = found.pixels.shape[1::-1] if found.source.orientation >= 5 else found.pixels.shape[:2]
            assert (found.source.height, found.source.width) == stored, path
            assert found.source.color, path
            assert not found.source.salvaged
            reasons["decoded"] += 1
    # What Pillow's own tests expect to be read is read: lower only with a reason that is as good.
    assert reasons["decoded"] >= 690
    assert set(reasons) >= {
        "decoded",
        "unknown_format",
        "unsupported",
        "truncated",
        "corrupt",
        "too_many_pixels",
    }


@pytest.mark.parametrize("scene", ["Landscape", "Portrait"])
@pytest.mark.parametrize("orientation", range(9))
def test_the_orientation_samples_come_out_upright(scene: str, orientation: int) -> None:
    reference = codecs.decode((ODD / f"exif-orientation/{scene}_1.jpg").read_bytes())
    decoded = codecs.decode((ODD / f"exif-orientation/{scene}_{orientation}.jpg").read_bytes())
    assert decoded.source.orientation == max(1, orientation)
    assert decoded.pixels.shape == reference.pixels.shape
    difference = np.abs(decoded.pixels.astype(int) - reference.pixels)
    # Each was scaled and compressed by itself, with its number in the picture.
    assert difference.mean() < 4
    assert np.percentile(difference, 99) < 20
    for other in (decoded.pixels[::-1], decoded.pixels[:, ::-1], decoded.pixels[::-1, ::-1]):
        assert np.abs(other.astype(int) - reference.pixels).mean() > 40


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("decompression_bomb.gif", "too_many_pixels"),
        ("bmp/b/reallybig.bmp", "too_many_pixels"),
        ("truncated_image.png", "truncated"),
        ("truncated_jpeg.jpg", "truncated"),
        ("broken_data_stream.png", "corrupt"),
        ("10ct_32bit_128.tiff", "unsupported"),
        ("bmp/q/rgb24jpeg.bmp", "unsupported"),
        ("hopper.psd", "unknown_format"),
        ("zero_width.gif", "corrupt"),
    ],
)
def test_reasons(name: str, reason: str) -> None:
    found = outcome(ODD / "pillow" / name)
    assert isinstance(found, ImageRejected)
    assert found.reason == reason


@pytest.mark.parametrize("name", ["truncated_image.png", "truncated_jpeg.jpg", "bmp/b/shortfile.bmp"])
def test_salvage(name: str) -> None:
    found = outcome(ODD / "pillow" / name, allow_truncated=True)
    assert isinstance(found, DecodedImage)
    assert found.source.salvaged


@pytest.mark.parametrize(
    ("name", "color"),
    [
        ("pil_sample_cmyk.jpg", "YCCK"),
        ("hopper.Lab.tif", "Lab"),
        ("12bit.cropped.tif", "grey 12-bit"),
        ("16bit.cropped.tif", "grey 16-bit"),
        ("hopper_g4.tif", "grey 1-bit"),
        ("iptc.jpg", "YCbCr 4:2:2"),
    ],
)
def test_source_colors(name: str, color: str) -> None:
    found = outcome(ODD / "pillow" / name)
    assert isinstance(found, DecodedImage)
    assert found.source.color == color


def test_without_metadata_every_picture_is_what_it_was_and_says_nothing_else() -> None:
    cleaned = 0
    for path in sorted(ODD.rglob("*.*")):
        found = outcome(path)
        if isinstance(found, ImageRejected) or found.source.format not in ("jpeg", "png", "webp"):
            continue
        clean = without_metadata(path.read_bytes(), found.source.format)
        if clean is None:
            continue
        again = codecs.decode(clean)
        assert (again.source.orientation, again.source.icc_profile) == (1, None), path
        if found.source.orientation == 1 and found.source.icc_profile is None:
            assert np.array_equal(again.pixels, found.pixels), path
        for said in (
            b"Exif\x00",
            b"EXIF",
            b"eXIf",
            b"http://",
            b"ICC_PROFILE",
            b"iCCP",
            b"tEXt",
            b"Photoshop",
            b"8BIM",
        ):
            assert said not in clean, (path, said)
        cleaned += 1
    assert cleaned > 400


def test_a_profile_of_many_parts() -> None:
    found = outcome(ODD / "pillow/icc_profile_big.jpg")
    assert isinstance(found, DecodedImage)
    assert found.source.icc_profile == "TIFF RGB"
