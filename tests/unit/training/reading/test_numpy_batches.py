"""``open_dataset(...).batches``: the batches of ``tf``, resumable, in slices, and no thread left behind."""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.config import AugmentSettings
from shardmill.training.order import Passes
from tests.samples.datasets.published import coloured, publish

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


def test_each_iteration_is_the_next_epoch(dataset: Dataset) -> None:
    told: dict[str, Any] = {"batch_size": 13, "image_size": 8}
    batches = dataset.batches("train", first_epoch=2, step=1, **told)
    passes = []
    for steps in (1, 2, 2):
        assert len(batches) == steps
        passes.append([(batch.epoch, batch.step) for batch in batches])
    assert passes == [[(2, 1)], [(3, 0), (3, 1)], [(4, 0), (4, 1)]]
    next(iter(batches))
    assert next(iter(batches)).epoch == 6, "an iteration that is left early counts"
    pinned = dataset.batches("train", epoch=2, step=1, **told)
    assert [[(batch.epoch, batch.step) for batch in pinned] for _ in range(2)] == [[(2, 1)]] * 2
    after_the_last = dataset.batches("train", first_epoch=0, step=2, **told)
    assert [batch.epoch for batch in after_the_last] == [1, 1]
    assert len(dataset.batches("train", epoch=0, step=2, **told)) == 0
    both = zip(after_the_last, after_the_last, strict=True)
    assert [(one.epoch, two.epoch) for one, two in both] == [(2, 3), (2, 3)]
    again = pickle.loads(pickle.dumps(Passes(range(4), 4)))
    assert [again.begin(), again.begin()] == [range(4), range(4, 8)]


def test_batches_and_datasets_introduce_themselves(dataset: Dataset) -> None:
    assert repr(dataset) == "<Dataset set@1: train 26, test 8; 2 classes>"
    assert len(dataset) == 34
    assert [record.id for record in dataset] == [
        record_id
        for split in dataset.splits
        for record_id in dataset.table(split).ids(np.arange(len(dataset.table(split))))
    ]
    batches = dataset.batches("train", batch_size=8, image_size=16)
    assert repr(batches) == "<3 batches of 8: set@1 train, epoch 0>"
    for images, labels in batches:
        assert (images.shape, labels.shape) == ((8, 16, 16, 3), (8,))
    batch = next(iter(batches))
    assert len(batch) == 8
    assert repr(batch) == "<batch of epoch 1, step 0: images uint8 [8, 16, 16, 3], labels int32 [8]>"
    for images, _, weights in dataset.batches("test", batch_size=5, image_size=16, last_batch="pad"):
        assert len(weights) == len(images) == 5
    view = dataset.query("label == 'a'")
    assert (len(view), repr(view)) == (22, "<Dataset set@1?label == 'a': train 17, test 5; 2 classes>")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threads": 0}, "threads = 0 must be at least 1"),
        ({"num_ranks": 0}, "rank 0 of 0"),
        ({"step": -1}, "step = -1"),
        ({"shares": (0, 1), "num_ranks": 2}, "shares"),
    ],
)
def test_wrong_numbers_are_refused(dataset: Dataset, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dataset.batches("train", batch_size=4, **wrong)
    for number in (-1, 26, "3"):
        with pytest.raises(UsageError, match="ordinal = "):
            dataset.reader("train").read(number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"batch_size": 27}, r"no full batch of 27 \(set batch_size to at most 26, or last_batch to pad\)"),
        ({"batch_size": 1 << 40}, "batch_size = 1099511627776: give 'auto'"),
        (
            {"batch_size": 8, "granularity": "block", "balance": "uniform"},
            "leave out balance|set granularity",
        ),
        ({"batch_size": 8, "num_workers": 2}, "unknown argument 'num_workers' .*did you mean 'threads'"),
        ({"batch_size": 8, "drop_remainder": True}, "did you mean 'last_batch'"),
        ({"batch_size": 8, "world_size": 2}, "did you mean 'num_ranks'"),
    ],
)
def test_errors_name_the_arguments_of_the_caller(dataset: Dataset, wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error) as caught:
        dataset.batches("train", image_size=8, **wrong)
    assert "data." not in str(caught.value)


def test_an_iteration_that_is_given_up_leaves_no_threads(dataset: Dataset) -> None:
    batches = iter(dataset.batches("train", batch_size=4, image_size=8, epochs=50))
    next(batches)
    assert any(thread.name.startswith("shardmill-ahead") for thread in threading.enumerate())
    del batches
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("shardmill-ahead") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the threads that make batches ahead are still there"
        time.sleep(0.01)
