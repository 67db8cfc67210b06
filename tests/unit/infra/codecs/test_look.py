"""The look of an image: its definition, and which images have none."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs import measures as look_module
from shardmill.infra.codecs.measures import looks, thumbnail, without_border
from shardmill.infra.codecs.prepare import luma
from shardmill.infra.format.contract import LOOK_BYTES, LOOK_SIDE, ROOT_UNIT
from tests.samples.images.photos import picture


def thumbnails(count: int) -> np.ndarray:
    return np.stack([thumbnail(luma(picture(seed, 300, 200))) for seed in range(count)])


def values(look: bytes | None) -> np.ndarray:
    assert look is not None
    return np.frombuffer(look, np.int8).reshape(LOOK_SIDE, LOOK_SIDE)


def test_looks_have_the_form_of_the_contract() -> None:
    assert (look_module.LOOK_SIDE, look_module.ROOT_UNIT) == (LOOK_SIDE, ROOT_UNIT)
    assert len(looks(thumbnails(1))[0] or b"") == LOOK_BYTES


def test_the_definition() -> None:
    small = thumbnails(10)
    places = np.arange(32) + 0.5
    table = np.sqrt(2 / 32) * np.cos(np.pi / 32 * np.arange(14)[:, np.newaxis] * places)
    table[0] /= np.sqrt(2)
    for found, one in zip(looks(small), small, strict=True):
        low = table @ one @ table.T
        low[0, 0] = 0
        # The table is rounded to integers, which moves a coefficient by less than half a grey level.
        least, most = (
            np.clip(np.sign(c) * 4 * np.sqrt(np.abs(c)), -127, 127) for c in (low - 0.5, low + 0.5)
        )
        least[0, 0] = most[0, 0] = 0
        assert np.all((values(found) >= least - 0.5) & (values(found) <= most + 0.5))


def test_a_mirrored_or_turned_image_has_other_signs_or_is_transposed() -> None:
    small = thumbnails(5)
    signs = (-1) ** np.arange(LOOK_SIDE)
    for plain, mirrored, flipped, transposed in zip(
        looks(small),
        looks(small[:, :, ::-1]),
        looks(small[:, ::-1]),
        looks(small.transpose(0, 2, 1)),
        strict=True,
    ):
        # A coefficient that is rounded to the next value may be rounded the other way.
        assert np.abs(values(mirrored) - values(plain) * signs).max() <= 1
        assert np.abs(values(flipped) - values(plain) * signs[:, np.newaxis]).max() <= 1
        assert np.array_equal(values(transposed), values(plain).T)


def test_a_look_does_not_depend_on_its_neighbours() -> None:
    small = thumbnails(20)
    together = looks(small)
    assert together == [looks(one[np.newaxis])[0] for one in small]
    assert len(set(together)) == 20
    assert looks(small[:0]) == []


Y, X = np.mgrid[:32, :32]


@pytest.mark.parametrize(
    "shades",
    [
        np.full((32, 32), 77),
        X * 8,
        (X + Y) * 4,
        ((X - 16) ** 2 + (Y - 16) ** 2) // 3,
        np.where(X > 16, 200, 50),
        X * 6 + np.random.default_rng(0).integers(-2, 3, (32, 32)) + 10,
    ],
    ids=["one shade", "run across", "run to a corner", "spot", "two halves", "run with noise"],
)
def test_blank_and_smooth_images_have_none(shades: np.ndarray) -> None:
    assert looks(shades.astype(np.uint8)[np.newaxis]) == [None]


@pytest.mark.parametrize("shade", [0, 128, 255])
@pytest.mark.parametrize("sides", [(5, 5, 5, 5), (1, 0, 0, 0), (0, 0, 12, 3)])
def test_a_border_is_cut_off(shade: int, sides: tuple[int, int, int, int]) -> None:
    inside = luma(picture(3, 90, 120))
    top, bottom, left, right = sides
    framed = np.pad(inside, ((top, bottom), (left, right)), constant_values=shade)
    noise = np.random.default_rng(1).integers(-2, 3, framed.shape)
    found = without_border(np.clip(framed + noise, 0, 255).astype(np.uint8))
    assert found is not None
    assert found.shape == inside.shape


@pytest.mark.parametrize(
    "pixels", [luma(picture(3, 90, 120)), np.full((40, 40), 9, np.uint8), np.zeros((1, 1), np.uint8)]
)
def test_what_has_no_border_or_is_all_border_stays(pixels: Pixels) -> None:
    assert without_border(pixels) is None
