"""Augmentations after crop and resize, compared with their formulas in float64."""

from __future__ import annotations

import colorsys
import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from shardmill.training.augment.kinds.color_jitter import LUMA, hue_matrices, saturation_matrices
from shardmill.training.augment.kinds.erasing import noise
from shardmill.training.augment.parameters import AugmentParameters, augment_image, draw_parameters
from shardmill.training.config import AugmentSettings
from tests.samples.training.drawn import drawn_for_images

SIZE = 24


def random_image(seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)


def draws_of(num: int = 200, seed: int = 3, **settings: object) -> AugmentParameters:
    chosen = AugmentSettings.model_validate({"horizontal_flip": False, **settings})
    sides = np.full(num, 40)
    return draw_parameters(chosen, seed, 1, np.arange(num), sides, sides, SIZE)


def test_flips_are_numpys() -> None:
    draws = draws_of(horizontal_flip=True, vertical_flip=True)
    kinds = set()
    for row in range(40):
        left_right, top_bottom = (
            bool(drawn_for_images(draws).left_right[row]),
            bool(drawn_for_images(draws).top_bottom[row]),
        )
        wanted = random_image()[:: -1 if top_bottom else 1, :: -1 if left_right else 1]
        assert np.array_equal(augment_image(random_image(), draws, row), wanted)
        kinds.add((left_right, top_bottom))
    assert len(kinds) == 4, "the two flips are drawn apart"


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_quarter_turns_are_numpys(dtype: type[np.generic], channels: int) -> None:
    draws = draws_of(quarter_turns=True)
    image = np.arange(SIZE * SIZE * channels).reshape(SIZE, SIZE, channels).astype(dtype)
    turns = drawn_for_images(draws).turns
    assert set(turns[:20].tolist()) == {0, 1, 2, 3}
    for row in range(20):
        found = augment_image(image.copy(), draws, row)
        assert np.array_equal(found, np.rot90(image, int(turns[row])))


def test_an_image_is_changed_in_its_own_memory_unless_it_is_read_only() -> None:
    draws = draws_of(vertical_flip=True, color_jitter={"hue": 0.2})
    row = int(np.argmax(drawn_for_images(draws).top_bottom))
    batch = np.stack([random_image(), random_image(1)])
    assert np.shares_memory(augment_image(batch[1], draws, row), batch)
    assert np.array_equal(batch[0], random_image())
    assert not np.array_equal(batch[1], random_image(1))
    frozen = random_image(1)
    frozen.flags.writeable = False
    assert np.array_equal(augment_image(frozen, draws, row), batch[1])
    assert np.array_equal(frozen, random_image(1))


JITTERS = (
    {"brightness": 0.4},
    {"contrast": 0.8},
    {"brightness": 0.5, "contrast": 0.5},
    {"saturation": 1.0},
    {"hue": 0.5},
    {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
)


@pytest.mark.parametrize("jitter", JITTERS, ids=lambda jitter: "+".join(jitter))
def test_jitter_is_its_formula(jitter: dict[str, float]) -> None:
    draws = draws_of(color_jitter=jitter)
    for row in range(25):
        pixels = random_image(row).astype(np.float64)
        mean = (pixels @ LUMA).mean()
        exact = pixels @ drawn_for_images(draws).matrices[row].T + drawn_for_images(draws).lifts[row] * mean
        found = augment_image(random_image(row), draws, row)
        assert np.abs(found - np.clip(exact, 0, 255)).max() <= 0.8


@given(
    st.tuples(*[st.floats(0.0, 2.0)] * 3),
    st.floats(-0.5, 0.5),
    st.permutations(["brightness", "contrast", "saturation", "hue"]),
)
def test_the_four_steps_commute(factors: tuple[float, float, float], turn: float, order: list[str]) -> None:
    """One matrix and one shift are what the steps do one after the other, in whichever order."""
    b, c, s = factors
    pixels = start = random_image(5).astype(np.float64)
    for step in order:
        mean = (pixels @ LUMA).mean()
        pixels = {
            "brightness": lambda p: b * p,
            "contrast": lambda p, mean=mean: c * p + (1 - c) * mean,
            "saturation": lambda p: s * p + (1 - s) * (p @ LUMA)[..., None],
            "hue": lambda p: p @ hue_matrices(np.array([turn]))[0].T,
        }[step](pixels)
    matrix = b * c * (saturation_matrices(np.array([s])) @ hue_matrices(np.array([turn])))[0]
    at_once = start @ matrix.T + b * (1 - c) * (start @ LUMA).mean()
    assert np.abs(pixels - at_once).max() < 1e-9


@pytest.mark.parametrize("kind", ["Brightness", "Contrast", "Color"])
def test_factors_mean_what_they_mean_in_pillow(kind: str) -> None:
    setting = {"Brightness": "brightness", "Contrast": "contrast", "Color": "saturation"}[kind]
    draws = draws_of(color_jitter={setting: 0.6})
    for row in range(10):
        matrix = drawn_for_images(draws).matrices[row]
        factor = {
            "Brightness": matrix[0, 0],
            "Contrast": matrix[0, 0],
            "Color": (matrix[0, 0] - LUMA[0]) / (1 - LUMA[0]),
        }[kind]
        wanted = getattr(ImageEnhance, kind)(Image.fromarray(random_image(row))).enhance(factor)
        found = augment_image(random_image(row), draws, row)
        assert np.abs(found.astype(int) - np.asarray(wanted, int)).max() <= 2


def test_hue_turns_red_to_yellow_and_keeps_grey_and_luma() -> None:
    sixth = hue_matrices(np.array([1 / 6, -1 / 6, 1 / 3, 0.0]))
    assert np.allclose(sixth @ np.ones(3), 1.0)
    assert np.allclose(LUMA @ sixth, LUMA)
    assert np.allclose(sixth[3], np.eye(3))
    assert np.allclose(sixth[0] @ sixth[0], sixth[2])
    assert np.allclose(sixth[0] @ sixth[1], np.eye(3))
    red = np.array([150.0, 90.0, 90.0])
    for matrix, turn in ((sixth[0], 1 / 6), (sixth[2], 1 / 3), (sixth[1], 5 / 6)):
        hue = colorsys.rgb_to_hsv(*(matrix @ red / 255))[0]
        assert hue == pytest.approx(turn, abs=0.06)


def test_factors_are_uniform_in_their_range() -> None:
    draws = draws_of(4_000, color_jitter={"brightness": 0.4})
    factors = drawn_for_images(draws).matrices[:, 0, 0]
    assert factors.min() == pytest.approx(0.6, abs=0.01)
    assert factors.max() == pytest.approx(1.4, abs=0.01)
    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    assert factors.std() == pytest.approx(0.8 / 12**0.5, abs=0.01)


def test_erasing_covers_the_share_asked_for() -> None:
    draws = draws_of(4_000, erasing={"probability": 0.25, "scale": [0.1, 0.3], "ratio": [0.5, 2.0]})
    top, left, height, width = drawn_for_images(draws).boxes.T
    hit = height > 0
    assert hit.mean() == pytest.approx(0.25, abs=0.02)
    assert (width[~hit] == 0).all()
    area = height[hit] * width[hit] / SIZE**2
    assert area.min() > 0.07
    assert area.max() < 0.34
    assert area.mean() == pytest.approx(0.2, abs=0.01)
    assert (top + height <= SIZE).all()
    assert (left + width <= SIZE).all()


def test_where_no_box_fits_nothing_is_erased() -> None:
    draws = draws_of(50, erasing={"probability": 1.0, "scale": [0.99, 1.0], "ratio": [9.0, 9.0]})
    assert not drawn_for_images(draws).boxes[:, 2:].any()
    assert np.array_equal(augment_image(random_image(), draws, 0), random_image())


@pytest.mark.parametrize("fill", ["mean", "black", "noise"])
def test_erased_pixels_are_the_fill_and_all_others_stay(fill: str) -> None:
    draws = draws_of(erasing={"probability": 1.0, "fill": fill})
    seen = []
    for row in range(20):
        top, left, height, width = drawn_for_images(draws).boxes[row]
        box = (slice(top, top + height), slice(left, left + width))
        image, found = random_image(row), augment_image(random_image(row), draws, row)
        outside = np.ones(image.shape, bool)
        outside[box] = False
        assert np.array_equal(found[outside], image[outside])
        if fill == "noise":
            seen.append(found[box].reshape(-1))
            assert np.array_equal(augment_image(random_image(row), draws, row), found)
        else:
            wanted = np.zeros(3) if fill == "black" else np.rint(image.mean(axis=(0, 1)))
            assert (found[box] == wanted).all()
    if fill == "noise":
        values = np.concatenate(seen).astype(float)
        assert values.mean() == pytest.approx(127.5, abs=3)
        assert values.std() == pytest.approx(256 / 12**0.5, abs=3)


def test_known_draws() -> None:
    """Augmentation is part of a run's exact resume: its draws never change between versions."""
    draws = draws_of(
        2,
        seed=9,
        vertical_flip=True,
        color_jitter={"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
        erasing={"probability": 1.0, "fill": "noise"},
    )
    assert drawn_for_images(draws).top_bottom.tolist() == [True, False]
    assert drawn_for_images(draws).lifts.tolist() == pytest.approx(
        [0.19093513397231623, -0.28627468629775915]
    )
    assert drawn_for_images(draws).matrices[0, 0].tolist() == pytest.approx(
        [0.664991032324911, 0.20761213593458963, -0.1753769679113428]
    )
    assert drawn_for_images(draws).boxes.tolist() == [[0, 1, 3, 5], [13, 10, 7, 14]]
    assert noise(drawn_for_images(draws).noise[:1], 1, 2).tolist() == [[[229, 7, 119], [13, 86, 21]]]


def test_draws_depend_on_the_position_alone() -> None:
    """A resumed run, and a run on other ranks, draws the same."""
    settings = AugmentSettings.model_validate(
        {
            "vertical_flip": True,
            "color_jitter": {"hue": 0.2},
            "erasing": {"probability": 0.7, "fill": "noise"},
        }
    )

    def varied(start: int, stop: int) -> npt.NDArray[np.uint8]:
        positions = np.arange(start, stop)
        sides = np.full(positions.shape, 50)
        draws = draw_parameters(settings, 4, 2, positions, sides, sides, SIZE)
        return np.stack([augment_image(random_image(at), draws, row) for row, at in enumerate(positions)])

    whole = varied(0, 60)
    for cuts in ((0, 30, 60), (0, 7, 20, 41, 60)):
        parts = [varied(start, stop) for start, stop in itertools.pairwise(cuts)]
        assert np.array_equal(np.concatenate(parts), whole)


def test_without_settings_nothing_is_drawn() -> None:
    draws = draw_parameters(None, 0, 0, np.arange(3), np.full(3, 30), np.full(3, 20), SIZE)
    assert draws.windows.tolist() == [[5, 0, 20, 20]] * 3
    assert np.array_equal(augment_image(random_image(), draws, 1), random_image())
