"""``open_dataset(...).batches``: the batches of ``tf``, resumable, in slices, and no thread left behind."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from infra.errors import UsageError
from tests.samples.datasets.published import coloured, publish
from training.config import AugmentSettings
from training.dataset import Dataset, open_dataset

COUNTS = {"train": {"a": 17, "b": 9}, "test": {"a": 5, "b": 3}}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured(COUNTS, size=(60, 80)), name="set")
    return open_dataset("set", root=root)


def test_batches_are_those_of_tensorflow(dataset: Dataset) -> None:
    augment = AugmentSettings(vertical_flip=True)
    wanted = list(
        dataset.tf("train", batch_size=8, image_size=24, epochs=2, balance="uniform", augment=augment)
    )
    batches = dataset.batches(
        "train", batch_size=8, image_size=24, epochs=2, balance="uniform", augment=augment
    )
    assert len(batches) == len(wanted) == 6
    for batch, (images, labels) in zip(batches, wanted, strict=True):
        assert np.array_equal(batch.images, images.numpy())
        assert np.array_equal(batch.labels, labels.numpy())


def test_it_goes_on_after_any_batch(dataset: Dataset) -> None:
    whole = [
        batch.ordinals.tolist() for batch in dataset.batches("train", batch_size=4, image_size=8, epochs=2)
    ]
    first = dataset.batches("train", batch_size=4, image_size=8)
    for number, batch in enumerate(first):
        rest = dataset.batches(
            "train", batch_size=4, image_size=8, epoch=batch.epoch, step=batch.step + 1, epochs=2
        )
        assert [each.ordinals.tolist() for each in rest][: len(whole) - number - 1] == whole[number + 1 :]


def test_ranks_divide_every_step(dataset: Dataset) -> None:
    whole = list(dataset.batches("train", batch_size=8, image_size=8))
    parts = [
        list(dataset.batches("train", batch_size=8, image_size=8, rank=rank, num_ranks=3, shares=(2, 1, 1)))
        for rank in range(3)
    ]
    for step, batch in enumerate(whole):
        slices = [part[step] for part in parts]
        assert [each.ordinals.size for each in slices] == [4, 2, 2]
        assert np.array_equal(np.concatenate([each.images for each in slices]), batch.images)
    with pytest.raises(UsageError, match="rank"):
        dataset.batches("train", batch_size=8, rank=3, num_ranks=3)


def test_a_partial_last_batch_is_smaller(dataset: Dataset) -> None:
    batches = list(dataset.batches("test", batch_size=3, image_size=8))
    assert [batch.images.shape[0] for batch in batches] == [3, 3, 2]
    ordinals = np.concatenate([batch.ordinals for batch in batches])
    assert ordinals.tolist() == list(range(8))
    padded = list(dataset.batches("test", batch_size=3, image_size=8, last_batch="pad"))
    assert [batch.weights.tolist() for batch in padded][-1] == [1, 1, 0]


def test_an_iteration_that_is_given_up_leaves_no_threads(dataset: Dataset) -> None:
    batches = iter(dataset.batches("train", batch_size=4, image_size=8, epochs=50))
    next(batches)
    assert any(thread.name.startswith("shardmill-ahead") for thread in threading.enumerate())
    del batches
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("shardmill-ahead") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the threads that make batches ahead are still there"
        time.sleep(0.01)
