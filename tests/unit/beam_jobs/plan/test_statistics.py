"""Statistics of splits, against the pixels themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.beam_jobs.plan import statistics
from shardmill.beam_jobs.plan.statistics import split_statistics
from shardmill.beam_jobs.schemas import FACTS_SCHEMA
from shardmill.infra.format.contract import SplitStatistics


def facts_of(images: list[np.ndarray]) -> pa.Table:
    """FACTS_SCHEMA of uint8 [H, W, C] images."""
    rows = [
        {
            "height": image.shape[0],
            "width": image.shape[1],
            "stored_bytes": image.nbytes,
            "pixel_mean": image.mean(axis=(0, 1)).tolist(),
            "pixel_std": image.std(axis=(0, 1)).tolist(),
        }
        for image in images
    ]
    return pa.Table.from_pylist(rows, FACTS_SCHEMA)


def of(images: list[np.ndarray]) -> SplitStatistics:
    return split_statistics(
        facts_of(images), np.arange(len(images), dtype=np.int32), np.zeros(len(images), np.int8)
    )["train"]


SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12)


@settings(deadline=None)
@given(SIZES, st.sampled_from([1, 3]), st.integers(0, 10**6))
def test_pixels_count_alike_whatever_image_they_are_in(
    sizes: list[tuple[int, int]], channels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    images = [rng.integers(0, rng.integers(2, 256), (*size, channels), np.uint8) for size in sizes]
    pixels = np.concatenate([image.reshape(-1, channels) for image in images])
    found = of(images)
    assert found.pixels is not None
    assert found.pixels.num_pixels == len(pixels)
    assert found.pixels.mean == pytest.approx(pixels.mean(axis=0), abs=1e-3)
    assert found.pixels.std == pytest.approx(pixels.std(axis=0), abs=1e-3)
    heights, widths = (sorted(side) for side in zip(*sizes, strict=True))
    assert found.height == (heights[0], np.median(heights), heights[-1])
    assert found.width == (widths[0], np.median(widths), widths[-1])
    aspects = sorted(width / height for height, width in sizes)
    assert found.aspect == pytest.approx((aspects[0], np.median(aspects), aspects[-1]), abs=1e-4)
    counts = sorted(image.nbytes for image in images)
    assert found.stored_bytes == (counts[0], np.median(counts), counts[-1])


def test_splits_apart_and_rows_chosen() -> None:
    facts = facts_of([np.full((2, 2, 1), value, np.uint8) for value in (10, 20, 90, 200)])
    found = split_statistics(facts, np.array([3, 0, 1], np.int32), np.array([2, 0, 0], np.int8))
    means = {split: one.pixels and one.pixels.mean for split, one in found.items()}
    assert means == {"train": [15.0], "test": [200.0]}


def test_no_variance_is_lost_far_from_zero() -> None:
    flat = [np.full((100, 100, 1), 254, np.uint8), np.full((100, 100, 1), 255, np.uint8)]
    found = of(flat)
    assert found.pixels is not None
    assert found.pixels.std == [0.5]


@pytest.mark.parametrize("means", [[None, [1.0]], [[1.0], [1.0, 2.0, 3.0]], [[], []]])
def test_pixels_that_are_not_known_of_every_image_are_not_claimed(means: list[list[float] | None]) -> None:
    rows = [
        {"height": 1, "width": 1, "stored_bytes": 1, "pixel_mean": mean, "pixel_std": mean} for mean in means
    ]
    facts = pa.Table.from_pylist(rows, FACTS_SCHEMA)
    found = split_statistics(facts, np.arange(2, dtype=np.int32), np.zeros(2, np.int8))["train"]
    assert found.pixels is None
    assert found.height == (1, 1.0, 1)


def test_parts_are_joined_as_if_they_were_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    images = [rng.integers(0, rng.integers(2, 256), (9, 7, 3), np.uint8) for _ in range(50)]
    whole = of(images)
    monkeypatch.setattr(statistics, "IMAGES_AT_A_TIME", 7)
    assert of(images) == whole
