"""The perceptual hash: what stays alike, what does not, and what has none."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.measures import perceptual_hashes, thumbnail
from shardmill.infra.codecs.prepare import luma
from tests.samples.images.photos import picture


def hash_of(pixels: Pixels) -> int | None:
    return perceptual_hashes(thumbnail(luma(pixels))[np.newaxis])[0]


def distance(one: int | None, other: int | None) -> int:
    assert one is not None
    assert other is not None
    return (one ^ other).bit_count()


def test_the_definition() -> None:
    thumbnails = np.stack([thumbnail(luma(picture(seed, 300, 200))) for seed in range(20)])
    places = np.arange(32) + 0.5
    table = np.sqrt(2 / 32) * np.cos(np.pi / 32 * np.arange(1, 9)[:, np.newaxis] * places)
    for value, small in zip(perceptual_hashes(thumbnails), thumbnails, strict=True):
        low = (table @ small @ table.T).ravel()
        bits = (low > np.median(low)).astype(int)
        expected = int("".join(map(str, bits)), 2)
        # Bits next to the median may turn on the rounding of the integer table.
        assert distance(value, expected) <= 2


@pytest.mark.parametrize("seed", range(6))
def test_scaled_and_compressed_pictures_look_the_same(seed: int) -> None:
    image = Image.fromarray(picture(seed, 400, 300))
    original = hash_of(np.asarray(image))
    for size in ((150, 200), (450, 600), (256, 341), (64, 85)):
        assert distance(original, hash_of(np.asarray(image.resize(size, Image.Resampling.LANCZOS)))) <= 4
    brighter = np.clip(np.asarray(image).astype(float) * 1.05 + 4, 0, 255).astype(np.uint8)
    assert distance(original, hash_of(brighter)) <= 4


def test_different_pictures_look_different() -> None:
    hashes = [hash_of(picture(seed, 300, 200)) for seed in range(40)]
    nearest = min(distance(a, b) for number, a in enumerate(hashes) for b in hashes[:number])
    assert nearest > 8


def test_blank_pictures_have_none() -> None:
    rng = np.random.default_rng(1)
    blank = [np.full((90, 70, 3), value, np.uint8) for value in (0, 128, 255)]
    noisy = rng.integers(250, 253, (300, 300, 3), dtype=np.uint8)
    assert [hash_of(pixels) for pixels in (*blank, noisy)] == [None] * 4
    assert perceptual_hashes(np.empty((0, 32, 32), np.uint8)) == []


def test_a_hash_does_not_depend_on_its_neighbours() -> None:
    thumbnails = np.stack([thumbnail(luma(picture(seed))) for seed in range(30)])
    together = perceptual_hashes(thumbnails)
    assert together == [perceptual_hashes(one[np.newaxis])[0] for one in thumbnails]
    assert len(set(together)) == 30
