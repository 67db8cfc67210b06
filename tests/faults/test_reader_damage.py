"""Damage of every kind, through everything that reads.

It is an error with names, or a record left out under a budget; never a wrong example, never a hang.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra import progress
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.records import CONTAINERS, Container
from shardmill.training.config import AugmentSettings
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.order import SequentialOrder
from shardmill.training.reading import Batch, BatchMaker
from shardmill.training.reading.example_spec import ExampleSpec
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"a": 9, "b": 6}}
SIZE = 16


def make(root: Path, container: Container = "gzip", **options: Any) -> DatasetVersion:
    return publish(
        root, coloured(COUNTS, size=(20, 26)), name="set", container=container, shards_per_split=3, **options
    )


def shard_file(version: DatasetVersion, number: int = 0) -> Path:
    path = version.storage.local_path(version.shards("train")[number].path)
    assert path is not None
    return path


def read_all(dataset: Dataset) -> list[Batch]:
    reader = dataset.reader("train")
    maker = BatchMaker(reader, image_size=SIZE, threads=1)
    order = SequentialOrder(len(reader.table), 5)
    try:
        return [maker.make(order.step(0, step)) for step in range(order.steps_per_epoch)]
    finally:
        maker.close()
        reader.close()


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_flip_of_any_byte_is_an_error_that_names_the_record(tmp_path: Path, container: Container) -> None:
    """Every byte of a shard: lengths, checksums, payloads, gzip's headers and trailers."""
    version = make(tmp_path, container)
    reader = open_dataset("set", root=tmp_path).reader("train")
    table = reader.table
    ordinals = np.flatnonzero(table.shard == 0)
    ids = table.ids(ordinals)
    sound = [(bytes(stored.image), stored.shape) for stored in reader.read_images(ordinals)]
    with shard_file(version).open("r+b") as stream:
        data = np.frombuffer(stream.read(), np.uint8)
        harmless = 0
        for place, value in enumerate(data.tolist()):
            os.pwrite(stream.fileno(), bytes([value ^ (1 << place % 8)]), place)
            hit = int(np.searchsorted(table.offset_bytes[ordinals], place, side="right")) - 1
            found = error_of(lambda: reader.read_images(ordinals))
            if found is None:
                # Some bits of a gzip header do nothing, nor do codes that a block declares and never uses.
                harmless += 1
                again = [(bytes(stored.image), stored.shape) for stored in reader.read_images(ordinals)]
                assert again == sound
            else:
                assert f"record {ids[hit]} at byte" in found.message
                assert "train-00000-of-00003" in found.message
                assert "verify set@1" in str(found.remedy)
            os.pwrite(stream.fileno(), bytes([value]), place)
    assert harmless <= (20 * len(ids) if container == "gzip" else 0)


def error_of(read: Callable[[], Any]) -> CorruptDataError | None:
    try:
        read()
    except CorruptDataError as error:
        return error
    return None


def swap_indexes(version: DatasetVersion) -> None:
    first, second = (version.storage.local_path(shard.index_path) for shard in version.shards("train")[:2])
    assert first is not None
    assert second is not None
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def swap_shards(version: DatasetVersion) -> None:
    """The same size of file, in the other's place: only reading tells."""
    first, second = shard_file(version, 0), shard_file(version, 1)
    one, other = first.read_bytes(), second.read_bytes()
    size = version.shards("train")[0].num_bytes
    first.write_bytes(other[:size].ljust(size, b"\0"))
    assert one != other


def index_of_another_version(version: DatasetVersion) -> None:
    root = Path(version.storage.uri).parent
    make(root / "other", quality=70)
    index = version.shards("train")[0].index_path
    shutil.copy(root / "other/set" / index, root / "set" / index)


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (lambda version: shard_file(version).unlink(), "no such file.*train-00000-of-00003"),
        (lambda version: shard_file(version).write_bytes(b""), "train-00000.* has 0 bytes"),
        (
            lambda version: shard_file(version).write_bytes(shard_file(version).read_bytes()[:-1]),
            "train-00000.* bytes, the manifest of set@1 says",
        ),
        (swap_indexes, "train-00000.*parquet differs from the index in the manifest of set@1"),
        (index_of_another_version, "train-00000.*parquet differs from the index in the manifest of set@1"),
        (swap_shards, "record [0-9a-f]{16} at byte 0 of .*train-00000-of-00003"),
    ],
    ids=["missing", "empty", "truncated", "swapped indexes", "index of another version", "swapped shards"],
)
def test_files_that_are_not_those_of_the_version(tmp_path: Path, damage: Any, names: str) -> None:
    version = make(tmp_path)
    damage(version)
    with pytest.raises(CorruptDataError, match=names):
        read_all(open_dataset("set", root=tmp_path))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_shard_that_goes_or_shrinks_while_it_is_read(tmp_path: Path, threads: int) -> None:
    version = make(tmp_path, "none")
    dataset = open_dataset("set", root=tmp_path)
    reader = dataset.reader("train")
    maker = BatchMaker(reader, image_size=SIZE, threads=threads)
    order = SequentialOrder(15, 5)
    maker.make(order.step(0, 0))
    with shard_file(version, 1).open("r+b") as stream:
        stream.truncate(100)
    with pytest.raises(CorruptDataError, match=r"record .* of .*train-00001.*: the shard ends after"):
        maker.make(order.step(0, 1))
    shard_file(version, 2).unlink()
    with pytest.raises(CorruptDataError, match=r"record .* of .*train-00002.*: no such file"):
        maker.make(order.step(0, 2))
    maker.close()


def damage_record(version: DatasetVersion, dataset: Dataset, ordinal: int) -> str:
    """Flip a byte amid a record; its id."""
    table = dataset.table("train")
    path = shard_file(version, int(table.shard[ordinal]))
    place = int(table.offset_bytes[ordinal]) + int(table.length_bytes[ordinal]) // 2
    data = path.read_bytes()
    path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
    return table.ids(np.array([ordinal]))[0]


def test_bad_records_are_left_out_within_the_budget(tmp_path: Path) -> None:
    version = make(tmp_path)
    options: dict[str, Any] = {"batch_size": 5, "image_size": SIZE, "training": True, "epochs": 2, "seed": 4}
    options["augment"] = AugmentSettings(horizontal_flip=False)
    sound = list(open_dataset("set", root=tmp_path).batches("train", **options))
    dataset = open_dataset("set", root=tmp_path, max_bad_records=2)
    bad = {damage_record(version, dataset, ordinal) for ordinal in (3, 11)}
    heard: list[Any] = []
    unsubscribe = progress.subscribe(heard.append)
    try:
        batches = list(dataset.batches("train", **options))
    finally:
        unsubscribe()
    ids = dataset.table("train").ids
    seen: list[str] = []
    for batch, whole in zip(batches, sound, strict=True):
        assert batch.images.shape == whole.images.shape
        for row, (name, was) in enumerate(zip(ids(batch.ordinals), ids(whole.ordinals), strict=True)):
            if was in bad:
                assert batch.weights[row] == 0
                assert name not in bad
                donor = ids(batch.ordinals).index(name)
                assert np.array_equal(batch.images[row], batch.images[donor])
                assert batch.labels[row] == batch.labels[donor]
            else:
                assert (name, batch.labels[row], batch.weights[row]) == (
                    was,
                    whole.labels[row],
                    whole.weights[row],
                )
                assert np.array_equal(batch.images[row], whole.images[row])
                seen.append(name)
    assert len(seen) == 2 * 13
    listed = dataset.bad_records.to_result()
    assert {record["id"] for record in listed} == bad
    assert all("train-0000" in record["shard"] and record["id"] in record["message"] for record in listed)
    assert {event["id"] for event in heard if event["event"] == "bad_record"} == bad


def test_one_bad_record_more_than_the_budget_is_an_error(tmp_path: Path) -> None:
    version = make(tmp_path)
    dataset = open_dataset("set", root=tmp_path, max_bad_records=1)
    for ordinal in (2, 9):
        name = damage_record(version, dataset, ordinal)
    with pytest.raises(CorruptDataError, match=f"record {name} .*1 damaged record .*max_bad_records"):
        read_all(dataset)


def test_a_batch_of_bad_records_alone_keeps_its_shape(tmp_path: Path) -> None:
    version = make(tmp_path)
    dataset = open_dataset("set", root=tmp_path, max_bad_records=15)
    for ordinal in range(5):
        damage_record(version, dataset, ordinal)
    first, second, third = read_all(dataset)
    assert not first.weights.any()
    assert not first.images.any()
    assert (second.weights == 1).all()
    assert (third.weights == 1).all()


@pytest.mark.parametrize("decoder", ["turbo", "tensorflow"])
def test_damage_through_tensorflow(tmp_path: Path, decoder: Any) -> None:
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline
    from shardmill.training.tensorflow.data.pipeline import reraise

    version = make(tmp_path)
    strict = open_dataset("set", root=tmp_path)
    name = damage_record(version, strict, 7)

    def steps(dataset: Dataset) -> tuple[IndexedPipeline, Any]:
        spec = ExampleSpec(image_size=SIZE, reading=ReadingSettings(decoder=decoder))
        pipeline = IndexedPipeline(dataset.reader("train"), SequentialOrder(15, 5), spec)
        return pipeline, reraise([pipeline], lambda: list(pipeline.dataset(0, 3).as_numpy_iterator()))

    with pytest.raises(CorruptDataError, match=f"record {name} at byte"):
        steps(strict)
    lenient = open_dataset("set", root=tmp_path, max_bad_records=1)
    _, batches = steps(lenient)
    assert [batch["weights"].tolist() for batch in batches] == [[1] * 5, [1, 1, 0, 1, 1], [1] * 5]
    assert batches[1]["ordinals"].tolist() == [5, 6, 5, 8, 9]
    assert np.array_equal(batches[1]["images"][2], batches[1]["images"][0])
    assert [record["id"] for record in lenient.bad_records.to_result()] == [name]
