"""The PNG files that stand for arrays: every reader reads them, and their bytes never change."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

from shardmill.beam_jobs.sources.kinds.arrays.reading import png_bytes, stored_png


@pytest.mark.parametrize("shape", [(1, 1, 1), (28, 28, 1), (32, 32, 3), (3, 5, 4), (200, 400, 3)])
def test_the_pixels_come_back(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = stored_png(pixels)
    assert len(data) == png_bytes(*shape)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.mode == {1: "L", 3: "RGB", 4: "RGBA"}[shape[2]]
        assert np.array_equal(np.asarray(image).reshape(shape), pixels)


def test_the_bytes_are_those_of_earlier_releases() -> None:
    pixels = (np.arange(28 * 28 * 3) % 251).astype(np.uint8).reshape(28, 28, 3)
    digest = hashlib.sha256(stored_png(pixels)).hexdigest()
    assert digest == "92303bce6df4d7e4478863de0d0ddce437f59bc825474f214bc8068f84acbc88"
