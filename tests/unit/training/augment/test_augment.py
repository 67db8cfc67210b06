"""Random windows stay in the image, keep their promises, and follow from (seed, epoch, position) alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.splitmix import U64
from shardmill.training.augment.kind import kinds
from shardmill.training.augment.kinds.flips import Flips
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.augment.windows import central_windows, random_windows
from shardmill.training.draws import Purpose, key_of


def keys_at(seed: int, epoch: int, positions: npt.NDArray[np.int64]) -> U64:
    """The keys of images, as runs have drawn from them since the first release."""
    return key_of(Purpose.IMAGE, seed, epoch, positions)


def flips(keys: U64, settings: AugmentSettings) -> npt.NDArray[np.bool_]:
    return Flips(settings).draw(keys, 8)["left_right"]


sides = st.lists(st.integers(1, 500), min_size=1, max_size=20)


@given(sides, sides, st.integers(0, 2**32))
def test_windows_lie_in_the_image(heights: list[int], widths: list[int], seed: int) -> None:
    size = min(len(heights), len(widths))
    height, width = np.array(heights[:size]), np.array(widths[:size])
    keys = keys_at(seed, 0, np.arange(size))
    for windows in (
        random_windows(height, width, keys, (0.08, 1.0), (0.75, 4 / 3)),
        central_windows(height, width),
    ):
        top, left, high, wide = windows.T
        assert (high >= 1).all()
        assert (wide >= 1).all()
        assert (top >= 0).all()
        assert (left >= 0).all()
        assert (top + high <= height).all()
        assert (left + wide <= width).all()


def test_windows_have_the_area_and_ratio_asked_for() -> None:
    num = 4_000
    height, width = np.full(num, 300), np.full(num, 400)
    windows = random_windows(height, width, keys_at(1, 2, np.arange(num)), (0.25, 0.5), (0.8, 1.25))
    area = windows[:, 2] * windows[:, 3] / (300 * 400)
    ratio = windows[:, 3] / windows[:, 2]
    assert area.min() > 0.24
    assert area.max() < 0.51
    assert area.mean() == pytest.approx(0.375, abs=0.01)
    assert ratio.min() > 0.78
    assert ratio.max() < 1.28
    assert np.log(ratio).mean() == pytest.approx(0, abs=0.02)


def test_where_no_window_fits_the_central_one_is_taken() -> None:
    windows = random_windows(
        np.array([10]), np.array([1000]), keys_at(0, 0, np.arange(1)), (0.9, 1.0), (0.75, 4 / 3)
    )
    assert windows.tolist() == [[0, 493, 10, 13]]


def test_draws_depend_on_the_position_alone() -> None:
    settings = AugmentSettings()
    whole = flips(keys_at(3, 1, np.arange(1_000)), settings)
    assert flips(keys_at(3, 1, np.arange(500, 600)), settings).tolist() == whole[500:600].tolist()
    assert flips(keys_at(3, 2, np.arange(1_000)), settings).tolist() != whole.tolist()
    assert 400 < whole.sum() < 600
    assert not flips(keys_at(3, 1, np.arange(9)), AugmentSettings(horizontal_flip=False)).any()


def test_known_windows() -> None:
    """Augmentation is part of a run's exact resume: its draws never change between versions."""
    windows = random_windows(
        np.array([100, 256]), np.array([200, 256]), keys_at(5, 6, np.array([7, 8])), (0.5, 1.0), (0.75, 4 / 3)
    )
    assert windows.tolist() == [[1, 7, 97, 105], [20, 57, 217, 193]]


def test_every_augmentation_has_streams_of_its_own() -> None:
    """Two that drew from the same stream would vary together. Their numbers never change between versions."""
    taken = {kind.__name__: (kind.streams.start, kind.streams.stop) for kind in kinds()}
    assert taken == {
        "RandomResizedCrop": (0, 301),
        "Flips": (400, 402),
        "QuarterTurns": (500, 501),
        "ColorJitter": (600, 604),
        "Erasing": (700, 701),
        "RandAugment": (0, 200),
        "Mixing": (200, 205),
    }
    assert [purpose.value for purpose in Purpose] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17, 24, 32, 61, 62]
