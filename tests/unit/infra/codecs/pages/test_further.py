"""Further pictures in a file, against what Pillow, tifffile and libheif count."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from shardmill.infra.codecs.pages.further import has_further_pictures


def written(form: str, count: int) -> bytes:
    sink = io.BytesIO()
    first, *others = (Image.new("RGB", (64, 48), colour) for colour in ("red", "blue", "green")[:count])
    first.save(sink, form, **({"save_all": True, "append_images": others} if others else {}))
    return sink.getvalue()


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF", "AVIF", "MPO", "JPEG", "BMP", "JPEG2000"])
def test_files_of_one_picture_and_of_several(form: str) -> None:
    assert not has_further_pictures(written(form, 1), "first")
    if form in ("JPEG", "BMP", "JPEG2000"):
        return
    for count in (2, 3):
        data = written(form, count)
        with Image.open(io.BytesIO(data)) as opened:
            assert getattr(opened, "n_frames", 1) == count
        assert has_further_pictures(data, "first")
        assert has_further_pictures(data, "channels") == (form != "TIFF"), "then they are read"


def test_thumbnails_and_pyramids_are_no_further_pages() -> None:
    sink = io.BytesIO()
    pixels = np.zeros((64, 64), np.uint8)
    with tifffile.TiffWriter(sink) as file:
        file.write(pixels, photometric="minisblack", subifds=1)
        file.write(pixels[::2, ::2], photometric="minisblack", subfiletype=1)
        file.write(pixels[::4, ::4], photometric="minisblack", subfiletype=1)
    assert not has_further_pictures(sink.getvalue(), "first")


@pytest.mark.skipif(shutil.which("convert") is None, reason="needs ImageMagick")
@pytest.mark.parametrize("ending", ["heic", "avif"])
def test_images_of_one_container(ending: str, tmp_path: Path) -> None:
    binding = pytest.importorskip("pi_heif")
    for count in (1, 2):
        file = tmp_path / f"{count}.{ending}"
        command = ["convert", "-size", "64x64", *["plasma:"] * count, str(file)]
        subprocess.run(command, check=True, timeout=60, capture_output=True)
        data = file.read_bytes()
        if ending == "heic":
            assert len(binding.open_heif(data)) == count
        assert has_further_pictures(data, "first") == (count > 1)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF", "AVIF", "MPO"])
def test_damage_is_no_further_picture(form: str) -> None:
    """Decoding finds the damage; looking for further pictures raises nothing."""
    data, random = written(form, 2), np.random.default_rng(0)
    for length in (*range(0, 200, 7), *range(200, len(data), 97)):
        has_further_pictures(data[:length], "first")
    for _ in range(200):
        changed = bytearray(data)
        for at in random.integers(4, len(data), 5):
            changed[at] = random.integers(256)
        has_further_pictures(bytes(changed), "first")
