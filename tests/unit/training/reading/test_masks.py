"""Masks in batches: they follow their images in every reader, or are refused."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.masks import decode_stored_mask
from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.training.augment.kinds.rand_augment import RandAugmentSettings
from shardmill.training.augment.settings import AugmentSettings
from tests.samples.images.masks import COLORS, IGNORED, config, make_masked
from tests.samples.preparing.prepared import run
from tests.samples.training.forms_elsewhere import check_forms


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("masked")
    run(make_masked(made / "photos", 16), made / "root", **config(image={"encoding": "png", "size": 96}))
    return made / "root"


@pytest.fixture
def dataset(root: Path) -> Dataset:
    return open_dataset("d", root=root)


def agreement(images: np.ndarray, masks: np.ndarray) -> float:
    """The share of pixels whose color is that of their class."""
    far = np.abs(images[..., np.newaxis, :].astype(int) - COLORS).sum(-1)
    nearest = far.argmin(-1)
    return float((np.where(nearest == 3, IGNORED, nearest) == masks).mean())


@pytest.mark.parametrize("augment", [False, True])
def test_masks_of_batches_follow_their_images(dataset: Dataset, augment: bool) -> None:
    options: dict[str, Any] = {"training": augment, "batch_size": 4, "image_size": 64}
    for batch in dataset.batches("train", **options):
        assert batch.labels.shape == batch.images.shape[:3]
        assert batch.labels.dtype == np.uint8
        assert agreement(batch.images, batch.labels) > 0.9


@pytest.mark.slow
def test_jax_and_grain_have_the_same_masks(root: Path) -> None:
    options: list[dict[str, Any]] = [
        {"batch_size": 4, "image_size": 64},
        {"batch_size": 4, "image_size": None, "training": False},
    ]
    check_forms(*((str(root), "d", "train", each) for each in options))


def test_whole_images_are_padded_with_no_class(dataset: Dataset) -> None:
    for batch in dataset.batches(
        "train", training=False, batch_size=4, image_size=None, last_batch="partial"
    ):
        assert batch.labels.shape == batch.images.shape[:3]
        for image, mask, (height, width) in zip(batch.images, batch.labels, batch.sizes, strict=True):
            assert agreement(image[:height, :width], mask[:height, :width]) > 0.97
            assert (mask[height:] == IGNORED).all()
            assert (mask[:, width:] == IGNORED).all()


@pytest.mark.parametrize("image_size", [64, None])
def test_tensorflow_reads_the_same_batches(dataset: Dataset, image_size: int | None) -> None:
    options: dict[str, Any] = {
        "training": False, "batch_size": 3, "image_size": image_size, "last_batch": "partial",
    }  # fmt: skip
    numpy_batches = list(dataset.batches("train", **options))
    elements = list(dataset.tf("train", **options))
    assert len(elements) == len(numpy_batches)
    for batch, (images, masks) in zip(numpy_batches, elements, strict=True):
        images = images if image_size else images["image"]
        assert images.numpy().tolist() == batch.images.tolist()
        assert masks.numpy().tolist() == batch.labels.tolist()


def test_caches_and_another_decoder_are_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match="a cache keeps images without their masks"):
        list(open_dataset("d", root=root, cache="memory").batches("train", batch_size=2, image_size=32))
    with pytest.raises(ConfigError, match="decoder = 'tensorflow' reads no masks"):
        open_dataset("d", root=root, decoder="tensorflow").tf("train", batch_size=2, image_size=32)


def test_images_that_would_leave_their_masks_are_refused(dataset: Dataset) -> None:
    mixed = AugmentSettings(mixup=0.2)
    with pytest.raises(ConfigError, match=r"augment\.mixup"):
        dataset.tf("train", batch_size=2, image_size=32, augment=mixed)
    operated = AugmentSettings(randaugment=RandAugmentSettings(num_ops=1))
    with pytest.raises(ConfigError, match=r"augment\.randaugment"):
        dataset.tf("train", batch_size=2, image_size=32, augment=operated)


def test_damaged_masks_are_left_out(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(data: bytes) -> np.ndarray:
        if zlib.crc32(data) % 3 == 0:
            raise ImageRejected("corrupt", "not a grey PNG of 8 or 16 bits")
        return decode_stored_mask(data)

    monkeypatch.setattr("shardmill.training.reading.records.annotations.decode_stored_mask", decode)
    with pytest.raises(CorruptDataError, match="its mask is not a grey PNG"):
        list(dataset.batches("train", training=False, batch_size=4, image_size=32))
    kept = open_dataset("d", root=dataset.version.storage.uri.rpartition("/")[0], max_bad_records=20)
    for batch in kept.batches("train", training=False, batch_size=4, image_size=64):
        assert agreement(batch.images, batch.labels) > 0.9
    assert kept.bad_records.to_result()


def test_a_batch_of_damaged_masks_shows_no_class(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(data: bytes) -> np.ndarray:
        raise ImageRejected("corrupt", "not a grey PNG of 8 or 16 bits")

    monkeypatch.setattr("shardmill.training.reading.records.annotations.decode_stored_mask", decode)
    kept = open_dataset("d", root=dataset.version.storage.uri.rpartition("/")[0], max_bad_records=20)
    for batch in kept.batches("train", training=False, batch_size=4, image_size=64):
        assert not batch.weights.any()
        assert not batch.images.any()
        assert (batch.labels == IGNORED).all()
