"""Batches as numpy arrays: a function of the step's plan, whoever makes them with however many threads."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import CorruptDataError, UsageError
from shardmill.training.augment.parameters import augment_image
from shardmill.training.config import AugmentSettings
from shardmill.training.config.data import DataSettings
from shardmill.training.order import Passes, TrainingOrder
from shardmill.training.reading import Batch, BatchMaker, RecordReader
from shardmill.training.reading.batch import BufferPool
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.reading.decode import decode_window
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.split_records import EncodedImage
from tests.samples.datasets.published import coloured, publish


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured({"train": {"a": 17, "b": 9}}, size=(60, 80)), name="set")
    return open_dataset("set", root=root)


def order_of(reader: RecordReader) -> TrainingOrder:
    return TrainingOrder(reader.table.label, seed=3, global_batch_size=10)


def equal(left: Batch, right: Batch) -> bool:
    names = ("images", "labels", "weights", "ordinals", "positions")
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in names)


def test_threads_slices_and_pickles_change_nothing(dataset: Dataset) -> None:
    reader = dataset.reader("train")
    maker = BatchMaker(reader, image_size=24, augment=AugmentSettings(), threads=4)
    alone = pickle.loads(pickle.dumps(BatchMaker(reader, image_size=24, augment=AugmentSettings())))
    alone.threads = 1
    order = order_of(reader)
    for step in range(order.steps_per_epoch):
        plan = order.step(1, step)
        whole = maker.make(plan)
        assert whole.ordinals.tolist() == plan.ordinals.tolist()
        assert whole.labels.tolist() == reader.table.label[plan.ordinals].tolist()
        assert (whole.epoch, whole.step) == (1, step)
        assert equal(whole, alone.make(plan))
        parts = [alone.make(plan.of_rank(rank, 3)) for rank in range(3)]
        assert np.array_equal(np.concatenate([part.images for part in parts]), whole.images)
    maker.close()


@pytest.mark.parametrize("size", [24, 60])
def test_images_mirrored_while_they_are_resized_are_those_mirrored_after_it(
    dataset: Dataset, size: int
) -> None:
    reader, whole = dataset.reader("train"), size == 60
    settings = AugmentSettings(vertical_flip=True, random_resized_crop=not whole)
    maker = BatchMaker(reader, image_size=size, augment=settings, threads=1)
    plan = order_of(reader).step(0, 0)
    draws = maker.parameters(plan)
    stored = reader.read_images(plan.ordinals)
    wanted = np.empty((len(stored), size, size, 3), np.uint8)
    for row, (image, window) in enumerate(zip(stored, draws.windows.tolist(), strict=True)):
        decode_window(image.image, "jpeg", image.shape, tuple(window), wanted[row])
        augment_image(wanted[row], draws, row)
    assert np.array_equal(maker.make(plan).images, wanted)
    assert 0 < sum(draws.mirrors(row) for row in range(len(stored))) < len(stored)


def test_a_maker_ends_while_batches_are_made_ahead(dataset: Dataset) -> None:
    reader = dataset.reader("train")

    def read_and_close() -> None:
        for _ in range(20):
            maker = BatchMaker(reader, image_size=224, threads=2)
            batches = iter(NumpyBatches(maker, order_of(reader), Passes(range(1000))))
            next(batches)
            maker.close()
            batches.close()  # type: ignore[attr-defined]  # a generator

    reading = threading.Thread(target=read_and_close, daemon=True)
    reading.start()
    reading.join(timeout=60)
    assert not reading.is_alive()


def test_an_image_that_is_none_is_named(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = dataset.reader("train")
    plan = order_of(reader).step(0, 0)
    broken = int(plan.ordinals[6])
    read = reader.read_images

    def read_with_damage(ordinals: npt.NDArray[np.int64]) -> list[EncodedImage]:
        stored = read(ordinals)
        return [
            each._replace(image=b"\xff\xd8 nothing") if ordinal == broken else each
            for ordinal, each in zip(ordinals.tolist(), stored, strict=True)
        ]

    monkeypatch.setattr(reader, "read_images", read_with_damage)
    name = reader.table.ids(np.array([broken]))[0]
    with pytest.raises(
        CorruptDataError, match=rf"record {name} at byte \d+ of data/.*cannot be decoded"
    ) as caught:
        BatchMaker(reader, image_size=24).make(plan)
    assert "shardmill verify set@1" in (caught.value.remedy or "")


def test_a_specification_stands_in_for_its_parts(dataset: Dataset) -> None:
    reader, spec = dataset.reader("train"), ExampleSpec(image_size=24, data=DataSettings(image_channels=1))
    plan = order_of(reader).step(0, 0)
    assert equal(
        BatchMaker(reader, spec).make(plan), BatchMaker(reader, image_size=24, image_channels=1).make(plan)
    )
    with pytest.raises(UsageError, match="spec and image_size are given"):
        BatchMaker(reader, spec, image_size=24)
    with pytest.raises(UsageError, match="image_size is missing"):
        BatchMaker(reader)


def test_memory_is_used_again_only_when_nobody_looks_at_it() -> None:
    pool = BufferPool()
    first = pool.take((10, 8, 8, 3))
    first[...] = 7
    address = first.ctypes.data
    assert address % 64 == 0
    view = first[2:4, 1]
    del first
    second = pool.take((10, 8, 8, 3))
    second[...] = 9
    assert view.tolist() == np.full((2, 8, 3), 7).tolist()
    del view
    third = pool.take((10, 8, 8, 3))
    assert third.ctypes.data == address
    assert not np.shares_memory(second, third)


def test_other_sizes_get_other_memory() -> None:
    pool = BufferPool()
    small = pool.take((2, 8, 8, 3))
    del small
    large = pool.take((200, 8, 8, 3))
    large[...] = 1
    assert large.shape == (200, 8, 8, 3)


def test_a_folder_that_is_gone_is_an_error_of_ours(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 12}}), name="set")
    reader = open_dataset("set", root=tmp_path).reader("train")
    for shard in version.manifest.shards:
        (tmp_path / "set" / shard.path).unlink()
    with pytest.raises(CorruptDataError, match="no such file"):
        BatchMaker(reader, image_size=16).make(order_of(reader).step(0, 0))
