"""The streaming pipeline: each record once, the same again, resumed anywhere, and damage by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, ShardmillError
from shardmill.infra.format.records import CONTAINERS, Container
from shardmill.training.augment.kinds.color_jitter import ColorJitterSettings
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.reading.example_spec import ExampleSpec
from tests.samples.datasets.elsewhere import elsewhere
from tests.samples.datasets.published import coloured, publish
from tests.samples.datasets.range_reads import note_reads

COUNTS = {"train": {"a": 26, "b": 15}, "test": {"a": 5, "b": 3}}
SETTINGS = ReadingSettings(shuffle_buffer=10, parallel_shards=2)
Batches = list[dict[str, Any]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    return Dataset(publish(root, coloured(COUNTS, size=(60, 80)), name="set", shards_per_split=5))


def stream_of(
    dataset: Dataset,
    worker: int = 0,
    num_workers: int = 1,
    *,
    split: str = "train",
    batch_size: int = 8,
    settings: ReadingSettings = SETTINGS,
    through_python: bool = False,
    **options: Any,
) -> Any:
    from shardmill.training.tensorflow.data.opening import open_stream, stream_plan
    from shardmill.training.tensorflow.data.streaming_sources import RunSource

    reader = dataset.reader(split)
    plan = stream_plan(
        reader, batch_size, worker=worker, num_workers=num_workers, seed=options.pop("seed", 3)
    )
    given = {"image_size": 24, "augment": AugmentSettings()} | options
    shuffled = given.pop("shuffled", True)
    stream = open_stream(reader, plan, ExampleSpec(reading=settings, **given), shuffled=shuffled)
    if through_python:
        stream.source = RunSource(reader, lambda error: None, run_bytes=4000)
    return stream


def batches_of(stream: Any, start: int, stop: int, batch_size: int | None = None) -> Batches:
    return list(stream.dataset(start, stop, batch_size).as_numpy_iterator())


def same(left: Batches, right: Batches) -> bool:
    return len(left) == len(right) and all(
        one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)
        for one, other in zip(left, right, strict=True)
    )


def real(batches: Batches, column: str = "ordinals") -> list[int]:
    return [int(value) for batch in batches for value in batch[column][batch["weights"] > 0]]


@pytest.mark.parametrize("num_workers", [1, 3])
def test_every_record_comes_once_an_epoch_over_all_workers(dataset: Dataset, num_workers: int) -> None:
    streams = [stream_of(dataset, worker, num_workers) for worker in range(num_workers)]
    steps = streams[0].order.steps_per_epoch
    for epoch in (0, 1):
        parts = [batches_of(stream, epoch * steps, (epoch + 1) * steps) for stream in streams]
        assert {len(part) for part in parts} == {steps}
        seen = [ordinal for part in parts for ordinal in real(part)]
        assert sorted(seen) == list(range(41))
        for step in range(steps):
            weights = np.concatenate([part[step]["weights"] for part in parts])
            assert weights.size == 8
            assert weights.sum() == pytest.approx(1, abs=1e-5)


def test_labels_and_pixels_are_those_of_the_records(dataset: Dataset) -> None:
    stream = stream_of(dataset, augment=None)
    exact = {
        ordinal: image
        for batch in _indexed(dataset)
        for ordinal, image in zip(batch["ordinals"].tolist(), batch["images"], strict=True)
    }
    for batch in batches_of(stream, 0, 6):
        assert batch["labels"].tolist() == stream.reader.table.label[batch["ordinals"]].tolist()
        for ordinal, image in zip(batch["ordinals"].tolist(), batch["images"], strict=True):
            assert np.array_equal(image, exact[ordinal])


def _indexed(dataset: Dataset) -> Any:
    from shardmill.training.order import SequentialOrder
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline

    spec = ExampleSpec(image_size=24, reading=ReadingSettings(decoder="tensorflow"))
    pipeline = IndexedPipeline(dataset.reader("train"), SequentialOrder(41, 41), spec)
    return pipeline.dataset(0, 1).as_numpy_iterator()


def test_epochs_are_shuffled_each_anew_and_the_same_again(dataset: Dataset) -> None:
    stream = stream_of(dataset)
    first, second = (real(batches_of(stream, 6 * epoch, 6 * epoch + 6)) for epoch in (0, 1))
    assert first != second
    assert first != sorted(first)
    assert same(batches_of(stream, 0, 12), batches_of(stream_of(dataset), 0, 12))
    assert real(batches_of(stream_of(dataset, seed=4), 0, 6)) != first


def test_the_seed_of_the_process_changes_nothing(dataset: Dataset) -> None:
    tf = pytest.importorskip("tensorflow")
    wanted = batches_of(stream_of(dataset), 0, 3)
    tf.random.set_seed(8)
    try:
        assert same(batches_of(stream_of(dataset), 0, 3), wanted)
    finally:
        tf.random.set_seed(None)


def test_a_stream_begun_anywhere_goes_on_like_the_unbroken_one(dataset: Dataset) -> None:
    settings = AugmentSettings(vertical_flip=True, color_jitter=ColorJitterSettings(brightness=0.4))
    stream = stream_of(dataset, augment=settings)
    whole = batches_of(stream, 0, 13)
    for start in (1, 5, 6, 9):
        assert same(batches_of(stream, start, 13), whole[start:])


@pytest.mark.parametrize("container", CONTAINERS)
def test_both_sources_give_the_same(tmp_path: Path, container: Container) -> None:
    dataset = Dataset(publish(tmp_path, coloured(COUNTS), container=container, shards_per_split=5))
    by_tensorflow = batches_of(stream_of(dataset, 1, 2), 0, 9)
    assert same(by_tensorflow, batches_of(stream_of(dataset, 1, 2, through_python=True), 0, 9))


def test_shards_that_are_no_files_of_this_machine_are_read_by_runs(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = note_reads(monkeypatch)
    there = Dataset(elsewhere(dataset.version))
    batches = batches_of(stream_of(there), 0, 6)
    assert same(batches, batches_of(stream_of(dataset), 0, 6))
    assert len(read) == 5 + 1, "a request a shard, and one for the padding of the last batch"


def test_replica_batches_are_the_slices_of_the_step(dataset: Dataset) -> None:
    stream = stream_of(dataset)
    [whole], parts = batches_of(stream, 2, 3), batches_of(stream, 2, 3, batch_size=2)
    assert len(parts) == 4
    assert np.array_equal(np.concatenate([part["images"] for part in parts]), whole["images"])


def test_without_shuffling_it_is_the_stored_order(dataset: Dataset) -> None:
    stream = stream_of(dataset, split="test", batch_size=3, augment=None, shuffled=False)
    batches = batches_of(stream, 0, 3)
    assert real(batches) == list(range(8))
    assert [int((batch["weights"] > 0).sum()) for batch in batches] == [3, 3, 2]


@pytest.mark.parametrize("encoding", ["jpeg", "png", "webp", "raw"])
def test_whole_images_are_padded_to_the_largest_of_their_batch(tmp_path: Path, encoding: Any) -> None:
    pictures = [
        picture
        for size in ((20, 31), (33, 24), (28, 40))
        for picture in coloured({"train": {"a": 2, "b": 1}}, size=size)
    ]
    dataset = Dataset(publish(tmp_path, pictures, encoding=encoding, classes=["a", "b"]))
    stream = stream_of(dataset, batch_size=4, image_size=None, augment=None)
    table, seen = stream.reader.table, []
    for batch in batches_of(stream, 0, 3):
        ordinals, images, shapes = batch["ordinals"], batch["images"], batch["shapes"]
        assert shapes[:, 0].tolist() == table.height[ordinals].tolist()
        assert shapes[:, 1].tolist() == table.width[ordinals].tolist()
        assert images.shape == (4, shapes[:, 0].max(), shapes[:, 1].max(), 3)
        for image, (height, width) in zip(images, shapes, strict=True):
            assert image[:height, :width].mean() > 50
            assert not image[height:].any()
            assert not image[:, width:].any()
        seen += ordinals[batch["weights"] > 0].tolist()
    assert sorted(seen) == list(range(9))


def test_memory_that_does_not_suffice_is_refused(dataset: Dataset) -> None:
    small = ReadingSettings(ram_budget_bytes=1 << 26)
    with pytest.raises(ConfigError, match="two batches need") as caught:
        stream_of(dataset, settings=small, image_size=4096)
    assert "set it to at least" in str(caught.value.remedy)
    stream = stream_of(dataset, settings=small)
    assert stream.budget.total == 1 << 26
    assert stream.shuffle_buffer == 41, "no more than there are"
    options = stream.dataset(0, 1).options()
    assert options.autotune.ram_budget == stream.budget.tuned < 1 << 26


# -- damage --------------------------------------------------------------------------------------------------


def _flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]


DAMAGE: dict[str, Callable[[bytes, list[int]], bytes | None]] = {
    "a flipped byte of a payload": lambda data, begins: _flip(data, begins[3] + 300),
    "a flipped byte of a length": lambda data, begins: _flip(data, begins[3] + 2),
    "cut within a record": lambda data, begins: data[: begins[4] + 50],
    "cut between two records": lambda data, begins: data[: begins[4]],
    "empty": lambda data, begins: b"",
    "two records swapped": lambda data, begins: (
        data[: begins[1]] + data[begins[2] : begins[3]] + data[begins[1] : begins[2]] + data[begins[3] :]
    ),
    "missing": lambda data, begins: None,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("container", CONTAINERS)
def test_damage_comes_out_as_our_error_with_names(tmp_path: Path, damage: str, container: Container) -> None:
    from shardmill.training.tensorflow.data.pipeline import reraise

    version: DatasetVersion = publish(tmp_path, coloured(COUNTS), container=container, shards_per_split=3)
    stream = stream_of(Dataset(version))
    table, path = stream.reader.table, version.storage.local_path(version.shards("train")[1].path)
    assert path is not None
    begins = table.offset_bytes[table.shard == 1].tolist()
    data = DAMAGE[damage](path.read_bytes(), begins)
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    given: list[int] = []

    def read() -> None:
        for batch in stream.dataset(0, 12).as_numpy_iterator():
            given.extend(batch["ordinals"].tolist())

    with pytest.raises(ShardmillError, match=r"record [0-9a-f]{16} at byte \d+ of .*train-00001-of-00003"):
        reraise([stream], read)
    assert len(given) < 41, "what came before the damage, and nothing after"
