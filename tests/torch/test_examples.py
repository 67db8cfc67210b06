"""The map-style dataset: the same examples one by one, and images of their own sizes in padded batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from shardmill import Dataset, open_dataset
from shardmill.infra.codecs import decode
from shardmill.infra.errors import CorruptDataError, UsageError
from shardmill.training.config import AugmentSettings
from shardmill.training.order import TrainingOrder
from shardmill.training.reading.batch_maker import BatchMaker
from shardmill.training.torch.data import (
    Example,
    Examples,
    OrderSampler,
    Place,
    RankOrder,
    TorchBatch,
    pad_collate,
)
from shardmill.training.torch.data.batch import to_torch
from tests.samples.datasets.published import Picture, publish

SIZE = 24
STEPS = 6


@pytest.fixture(scope="module")
def order(dataset: Dataset) -> RankOrder:
    labels = dataset.table("train").label
    return RankOrder(TrainingOrder(labels, seed=3, global_batch_size=10), rank=1, num_ranks=3)


def examples_of(dataset: Dataset, **told: Any) -> Examples:
    settings = {"image_size": SIZE, "augment": AugmentSettings(), "seed": 3, **told}
    return Examples(dataset.reader("train"), **settings)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_sampled_examples_are_the_batches_of_the_order(
    dataset: Dataset, order: RankOrder, num_workers: int
) -> None:
    sampler = OrderSampler(order)
    loader = DataLoader(
        examples_of(dataset),
        batch_sampler=sampler,
        collate_fn=pad_collate,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
    )
    maker = BatchMaker(dataset.reader("train"), image_size=SIZE, augment=AugmentSettings())
    for epoch, first in ((0, 0), (1, 0), (5, 2)):
        sampler.set_epoch(epoch, first)
        batches = list(loader)
        assert len(batches) == len(loader) == STEPS - first
        for number, batch in enumerate(batches):
            want = to_torch(maker.make(order.plan(epoch * STEPS + first + number)))
            assert isinstance(batch, TorchBatch)
            assert batch.features == want.features == {}
            for left, right in zip(batch[:-1], want[:-1], strict=True):
                assert torch.equal(torch.as_tensor(left), torch.as_tensor(right))
            assert batch.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_examples_by_number_vary_with_the_epoch_that_was_named(dataset: Dataset, num_workers: int) -> None:
    examples = examples_of(dataset)
    shuffled = DataLoader(
        examples,
        batch_size=8,
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        collate_fn=pad_collate,
    )
    images = {}
    for epoch in (0, 1, 0):
        examples.set_epoch(epoch)
        batches = list(shuffled)
        ordinals = torch.cat([batch.ordinals for batch in batches])
        assert sorted(ordinals.tolist()) == list(range(len(examples)))
        in_order = torch.cat([batch.images for batch in batches])[ordinals.argsort()]
        images.setdefault(epoch, in_order)
        assert torch.equal(images[epoch], in_order)
    assert not torch.equal(images[0], images[1])


def test_one_example(dataset: Dataset) -> None:
    examples = examples_of(dataset)
    table = dataset.table("train")
    example = examples[7]
    assert isinstance(example, Example)
    assert (example.image.shape, example.image.dtype) == ((3, SIZE, SIZE), torch.uint8)
    assert (example.label, example.ordinal, example.position) == (int(table.label[7]), 7, 7)
    assert (example.epoch, example.step, example.weight) == (0, -1, 1.0)
    assert examples[-1].ordinal == len(examples) - 1 == 52
    for wrong in (53, -54):
        with pytest.raises(IndexError, match="53 records"):
            _ = examples[wrong]


def test_places_of_several_epochs_in_one_batch(dataset: Dataset) -> None:
    examples = examples_of(dataset)
    places = [Place(3, 3, 0, epoch, 0, 1.0) for epoch in (0, 0, 4, 0)]
    images = [example.image for example in examples.__getitems__(places)]
    assert torch.equal(images[0], images[1])
    assert torch.equal(images[0], images[3])
    assert not torch.equal(images[0], images[2])


@pytest.mark.parametrize("encoding", ["jpeg", "png"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_images_of_unlike_sizes_are_padded(tmp_path: Path, encoding: Any, num_workers: int) -> None:
    chance = np.random.default_rng(1)
    shapes = [(20, 30, 3), (31, 17, 3), (8, 8, 3), (25, 25, 3), (40, 9, 3)]
    pictures = [Picture("train", "a", chance.integers(0, 256, shape).astype(np.uint8)) for shape in shapes]
    publish(tmp_path, pictures, name="mixed", encoding=encoding)
    dataset = open_dataset("mixed", root=tmp_path)
    loader = dataset.torch(
        "train", batch_size=3, image_size=None, last_batch="pad", num_workers=num_workers, num_epochs=1
    )
    batches = list(loader)
    assert len(batches) == 2
    for batch in batches:
        assert batch.images.shape[2:] == tuple(batch.sizes.max(dim=0).values.tolist())
        records = dataset.reader("train").read_many(batch.ordinals.numpy())
        for image, (height, width), record in zip(batch.images, batch.sizes.tolist(), records, strict=True):
            assert (height, width) == (record.height, record.width)
            stored = torch.tensor(decode(record.image).pixels).permute(2, 0, 1)
            assert torch.equal(image[:, :height, :width], stored)
            assert not image[:, height:].any()
            assert not image[:, :, width:].any()
    assert batches[1].weights.tolist() == [0.5, 0.5, 0]


def test_a_whole_image_that_is_none_is_named(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = dataset.reader("train")
    (stored,) = reader.read_images(np.array([3]))
    broken = [stored._replace(image=b"\xff\xd8 nothing")]
    monkeypatch.setattr(reader, "read_images", lambda ordinals: broken)
    name = reader.table.ids(np.array([3]))[0]
    with pytest.raises(CorruptDataError, match=rf"record {name} at byte \d+ of data/.*cannot be decoded"):
        Examples(reader, image_size=None)[3]


def test_whole_images_cannot_be_varied(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match="image_size"):
        examples_of(dataset, image_size=None)
