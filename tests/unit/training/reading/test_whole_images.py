"""Whole images of different sizes: padded batches that hold the stored pixels, and the memory they take."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.codecs import decode
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.config import AugmentSettings
from tests.samples.datasets.published import Picture, publish

SHAPES = [(20, 30), (31, 17), (8, 8), (25, 25), (40, 9), (12, 50), (9, 9), (33, 21), (10, 44), (16, 16)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = np.random.default_rng(1)
    pictures = [
        Picture(split, "ab"[number % 2], chance.integers(0, 256, (*shape, 3)).astype(np.uint8))
        for split in ("train", "test")
        for number, shape in enumerate(SHAPES)
    ]
    root = tmp_path_factory.mktemp("datasets")
    publish(root, pictures, name="mixed", encoding="png")
    return root


@pytest.fixture
def dataset(root: Path) -> Dataset:
    return open_dataset("mixed", root=root)


def assert_whole(dataset: Dataset, split: str, images: Any, sizes: Any, ordinals: Any) -> None:
    """Compare padded images with the records."""
    assert images.shape[1:3] == tuple(sizes.max(axis=0))
    records = dataset.reader(split).read_many(ordinals)
    for image, (height, width), record in zip(images, sizes.tolist(), records, strict=True):
        assert (height, width) == (record.height, record.width)
        assert np.array_equal(image[:height, :width], decode(record.image).pixels)
        assert not image[height:].any()
        assert not image[:, width:].any()


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("cache", ["none", "memory"])
def test_numpy_batches_hold_the_stored_pixels(root: Path, split: str, cache: Any) -> None:
    dataset = open_dataset("mixed", root=root, cache=cache, cache_form="decoded")
    batches = list(dataset.batches(split, batch_size=4, image_size=None, epochs=2 if split == "train" else 1))
    assert [batch.images.shape[0] for batch in batches] == ([4] * 4 if split == "train" else [4, 4, 2])
    for batch in batches:
        assert_whole(dataset, split, batch.images, batch.sizes, batch.ordinals)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("last_batch", ["drop", "partial", "pad"])
@pytest.mark.parametrize("decoder", ["turbo", "tensorflow"])
def test_tensorflow_gives_the_same_batches(root: Path, split: str, last_batch: Any, decoder: Any) -> None:
    dataset = open_dataset("mixed", root=root, decoder=decoder)
    options: Any = {"batch_size": 3, "image_size": None, "last_batch": last_batch, "seed": 7}
    batches = list(dataset.batches(split, **options))
    elements = list(dataset.tf(split, **options).as_numpy_iterator())
    assert len(batches) == len(elements) == (3 if last_batch == "drop" else 4)
    for batch, (first, labels, *weights) in zip(batches, elements, strict=True):
        assert np.array_equal(first["image"], batch.images)
        assert np.array_equal(first["image_size"], batch.sizes)
        assert np.array_equal(labels, batch.labels)
        assert bool(weights) == (last_batch == "pad")


def test_the_epoch_goes_on_at_any_step_and_for_any_rank(dataset: Dataset) -> None:
    options: Any = {"batch_size": 4, "image_size": None, "epoch": 3}
    whole = list(dataset.batches("train", **options))
    (second,) = dataset.batches("train", step=1, **options)
    assert np.array_equal(second.images, whole[1].images)
    own = [list(dataset.batches("train", rank=rank, num_ranks=2, **options)) for rank in range(2)]
    for batch, *parts in zip(whole, *own, strict=True):
        assert np.array_equal(np.concatenate([part.ordinals for part in parts]), batch.ordinals)
        for part in parts:
            assert_whole(dataset, "train", part.images, part.sizes, part.ordinals)


def test_memory_is_used_again_without_the_pixels_of_before(dataset: Dataset) -> None:
    maker = dataset.batches("train", batch_size=2, image_size=None, epochs=20)
    for batch, following in pairwise(maker):
        assert batch.epoch <= following.epoch
        assert_whole(dataset, "train", batch.images, batch.sizes, batch.ordinals)


def test_a_damaged_record_is_replaced_with_its_size(root: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(root, tmp_path / "copy")
    dataset = open_dataset("mixed", root=tmp_path / "copy", max_bad_records=1)
    path, offset, length = dataset.table("test").place(1)
    shard = tmp_path / "copy/mixed" / path
    data = bytearray(shard.read_bytes())
    data[offset + length // 2] ^= 0xFF
    shard.write_bytes(bytes(data))
    (batch,) = dataset.batches("test", batch_size=10, image_size=None)
    assert batch.weights.tolist() == [1, 0] + [1] * 8
    assert batch.sizes[1].tolist() == batch.sizes[0].tolist()
    assert np.array_equal(batch.images[1], batch.images[0])


def test_too_much_memory_is_refused_before_the_first_batch(root: Path) -> None:
    dataset = open_dataset("mixed", root=root, ram_budget_bytes=1 << 26)
    fits = (1 << 26) // (4 * 40 * 50 * 3)
    dataset.batches("train", batch_size=fits, image_size=None, last_batch="pad")
    for read in (dataset.batches, dataset.tf):
        with pytest.raises(ConfigError, match="whole images of up to 40 x 50 pixels") as caught:
            read("train", batch_size=fits + 1, image_size=None, last_batch="pad")
        assert "ram_budget_bytes" in (caught.value.remedy or "")
    dataset.batches("train", batch_size=fits + 1, image_size=None, last_batch="pad", num_ranks=2)


def test_augmentation_of_whole_batches_is_refused(dataset: Dataset) -> None:
    augment = AugmentSettings(mixup=0.2)
    for read in (dataset.batches, dataset.tf):
        with pytest.raises(UsageError, match="images of many sizes cannot be augmented"):
            read("train", batch_size=2, image_size=None, augment=augment)
