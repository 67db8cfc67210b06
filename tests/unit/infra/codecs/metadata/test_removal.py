"""The same pictures without metadata."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs.metadata.removal import without_metadata
from tests.samples.images.forms import gradient, gradient_image, png_chunk, rgb_profile, saved

SECRETS = {"JPEG": b"\xff\xe1", "PNG": b"eXIf", "WEBP": b"EXIF"}


@pytest.mark.parametrize(
    ("format_", "mode"),
    [
        *(("JPEG", mode) for mode in ("RGB", "L")),
        *((format_, mode) for format_ in ("PNG", "WEBP") for mode in ("RGB", "RGBA", "L", "P")),
    ],
)
@pytest.mark.parametrize("lossless", [False, True])
def test_without_metadata_the_picture_is_the_same(format_: str, mode: str, lossless: bool) -> None:
    source = gradient_image().convert(mode)
    if mode == "RGBA":
        source.putalpha(Image.linear_gradient("L").resize(source.size))
    exif = Image.Exif()
    exif[0x010F] = "Camera of somebody"
    options: dict[str, Any] = {"exif": exif, "icc_profile": rgb_profile(swapped=False)}
    options |= {"lossless": lossless, "xmp": b"somebody"} if format_ == "WEBP" else {}
    plain = {"lossless": lossless} if format_ == "WEBP" else {}
    data = saved(source, format_, **options) + b"and more of somebody"
    clean = without_metadata(data, format_.lower())
    assert clean is not None
    assert b"somebody" in data
    for secret in (b"somebody", SECRETS[format_], b"ICC", b"iCCP"):
        assert secret not in clean
    assert without_metadata(clean, format_.lower()) == clean
    assert len(clean) <= len(saved(source, format_, **plain)) + 18
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(clean)) as after:
        assert np.array_equal(np.asarray(before), np.asarray(after))


@pytest.mark.parametrize("format_", ["gif", "tiff", "bmp", "avif", "heif", "jpeg2000"])
def test_metadata_of_other_formats_cannot_be_removed(format_: str) -> None:
    assert without_metadata(b"anything", format_) is None


def test_metadata_of_an_animation_or_of_a_broken_file_cannot_be_removed() -> None:
    frames = [Image.new("RGB", (20, 10), color) for color in ("red", "blue")]
    assert without_metadata(saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]), "webp") is None
    for format_ in SECRETS:
        for end in (40, -2):
            assert without_metadata(saved(gradient_image(), format_)[:end], format_.lower()) is None


def test_what_lies_behind_a_chunk_that_cannot_be_followed_never_passes_for_the_picture() -> None:
    plain = saved(gradient_image(), "PNG")
    end = plain.index(b"IEND") - 4
    data = plain[:end] + png_chunk(b"\x00\x00\x00\x00", b"") + png_chunk(b"tEXt", b"somebody") + plain[end:]
    assert np.array_equal(codecs.decode(data).pixels, gradient())
    assert without_metadata(data, "png") is None
