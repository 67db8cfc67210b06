"""Boxes and masks move with their images: the same window, resize, flips and quarter turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError
from shardmill.training.augment.geometry import move_boxes, move_mask
from shardmill.training.augment.kinds.flips import Flips
from shardmill.training.augment.parameters import AugmentParameters, augment_image, draw_parameters
from shardmill.training.config import AugmentSettings
from shardmill.training.reading.decode import decode_window

SIZE = 48
PADDING = [np.nan] * 4


def one(
    window: tuple[int, int, int, int], left_right: bool = False, top_bottom: bool = False
) -> AugmentParameters:
    flips = {"left_right": np.array([left_right]), "top_bottom": np.array([top_bottom])}
    return AugmentParameters(np.array([window], np.int32), ((Flips(AugmentSettings()), flips),))


def moved(boxes: list[list[float]], parameters: AugmentParameters, height: int, width: int) -> Any:
    given_boxes = np.array([boxes], np.float32).reshape(1, -1, 4)
    return move_boxes(given_boxes, parameters, np.array([height]), np.array([width]))


CASES = {
    # name: (box, window of a 100 × 200 image, flips left to right, top to bottom, expected; None: left out)
    "the whole image": ([0.1, 0.2, 0.5, 0.6], (0, 0, 100, 200), False, False, [0.1, 0.2, 0.5, 0.6]),
    "a window around it": ([0.5, 0.5, 0.75, 0.75], (50, 100, 50, 100), False, False, [0, 0, 0.5, 0.5]),
    "cut off at two edges": ([0.4, 0.4, 0.8, 0.8], (50, 100, 50, 100), False, False, [0, 0, 0.6, 0.6]),
    "mirrored": ([0.1, 0.2, 0.5, 0.6], (0, 0, 100, 200), True, False, [0.1, 0.4, 0.5, 0.8]),
    "turned over": ([0.1, 0.2, 0.5, 0.6], (0, 0, 100, 200), False, True, [0.5, 0.2, 0.9, 0.6]),
    "both": ([0.1, 0.2, 0.5, 0.6], (0, 0, 100, 200), True, True, [0.5, 0.4, 0.9, 0.8]),
    "a quarter is left": ([0.4, 0.4, 0.6, 0.6], (50, 100, 50, 100), False, False, [0, 0, 0.2, 0.2]),
    "a fifth is left": ([0.1, 0.5, 0.6, 0.75], (50, 100, 50, 100), False, False, None),
    "outside": ([0.0, 0.0, 0.3, 0.3], (50, 100, 50, 100), False, False, None),
    "touches": ([0.0, 0.0, 0.5, 0.5], (50, 100, 50, 100), False, False, None),
    "no area": ([0.6, 0.6, 0.6, 0.9], (0, 0, 100, 200), False, False, None),
    "padding": (PADDING, (0, 0, 100, 200), True, True, None),
}


@pytest.mark.parametrize("name", CASES)
def test_boxes_move(name: str) -> None:
    box, window, left_right, top_bottom, expected = CASES[name]
    found = moved([box], one(window, left_right, top_bottom), 100, 200)
    assert found.kept.tolist() == [[expected is not None]]
    assert found.boxes.dtype == np.float32
    np.testing.assert_allclose(found.boxes[0, 0], expected or [0, 0, 0, 0], atol=1e-6)


def test_images_without_boxes_stay_without() -> None:
    found = moved([], one((0, 0, 10, 10), True), 10, 10)
    assert found.boxes.shape == (1, 0, 4)
    assert found.kept.shape == (1, 0)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[npt.NDArray[np.uint8], list[int], AugmentParameters]:
    """An image with one filled rectangle, its edges, and a drawn augmentation."""
    height, width = draw(st.integers(8, 120)), draw(st.integers(8, 120))
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    bottom, right = draw(st.integers(top + 1, height)), draw(st.integers(left + 1, width))
    mask = np.zeros((height, width), np.uint8)
    mask[top:bottom, left:right] = 255
    settings = AugmentSettings(vertical_flip=True, quarter_turns=True, scale=(0.1, 1.0), ratio=(0.4, 2.5))
    seed, epoch, position = draw(st.integers(0, 2**32)), draw(st.integers(0, 9)), draw(st.integers(0, 999))
    sides = np.array([height]), np.array([width])
    parameters = draw_parameters(settings, seed, epoch, np.array([position]), *sides, SIZE)
    return mask, [top, left, bottom, right], parameters


def edges_of(mask: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """The edges of the smallest box around a mask (pixels); None if it is empty."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not rows.size:
        return None
    return np.array([rows[0], columns[0], rows[-1] + 1, columns[-1] + 1], float)


@given(scenes())
def test_a_rectangle_moves_alike_as_a_box_and_as_a_mask(scene: Any) -> None:
    mask, edges, parameters = scene
    height, width = mask.shape
    relative = np.array(edges) / [height, width, height, width]
    found = move_boxes(
        relative.reshape(1, 1, 4).astype(np.float32),
        parameters,
        np.array([height]),
        np.array([width]),
        least_share=0.0,
    )
    new = move_mask(mask, parameters, 0, SIZE)
    assert set(np.unique(new)) <= {0, 255}
    around = edges_of(new)
    if around is None:  # no centre of a new pixel lies in it
        top, left, bottom, right = found.boxes[0, 0] * SIZE
        assert not found.kept[0, 0] or min(bottom - top, right - left) <= 1.0
    else:
        assert found.kept[0, 0]
        assert np.abs(found.boxes[0, 0] * SIZE - around).max() <= 0.5 + 1e-3


@given(scenes())
def test_a_mask_moves_as_the_pixels_of_its_image(scene: Any) -> None:
    """Only pixels at the edge of the rectangle may differ, where resized pixels are between both values."""
    mask, _, parameters = scene
    stored = np.repeat(mask[..., np.newaxis], 3, axis=2)
    image = np.zeros((SIZE, SIZE, 3), np.uint8)
    decode_window(stored.tobytes(), "raw", stored.shape, tuple(parameters.windows[0].tolist()), image)
    augment_image(image, parameters, 0)
    new = move_mask(mask, parameters, 0, SIZE)
    sure = (image[..., 0] < 16) | (image[..., 0] > 239)
    assert np.array_equal(new[sure], np.where(image[..., 0] > 127, 255, 0)[sure])


def test_a_mask_keeps_its_type_and_values() -> None:
    mask = np.random.default_rng(0).integers(0, 60_000, (31, 57)).astype(np.uint16)
    new = move_mask(mask, one((3, 5, 20, 40), True, True), 0, 64)
    assert new.shape == (64, 64)
    assert new.dtype == np.uint16
    assert np.isin(new, mask[3:23, 5:45]).all()
    same = move_mask(mask, one((0, 0, 31, 31)), 0, 31)
    assert np.array_equal(same, mask[:, :31])


def test_stretched_images_move_no_box() -> None:
    boxes = np.random.default_rng(1).random((3, 5, 4)).astype(np.float32)
    boxes.sort(axis=-1)
    heights, widths = np.array([10, 480, 33]), np.array([20, 640, 7])
    parameters = draw_parameters(None, 0, 0, np.arange(3), heights, widths, SIZE, fit="stretch")
    found = move_boxes(boxes, parameters, heights, widths)
    assert found.kept.all()
    np.testing.assert_allclose(found.boxes, boxes, atol=1e-6)


def test_what_would_leave_objects_behind_is_refused() -> None:
    AugmentSettings(vertical_flip=True, erasing={"probability": 1.0}).check_objects_follow()
    for settings in ({"mixup": 0.2}, {"cutmix": 1.0}, {"randaugment": {"num_ops": 2}}):
        with pytest.raises(ConfigError, match=f"augment.{next(iter(settings))}"):
            AugmentSettings.model_validate(settings).check_objects_follow()
